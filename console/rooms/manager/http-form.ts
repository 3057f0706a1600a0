/** The origins of a grant for HTTP as lines of text. */
import type { Task, TaskCreate } from '../../api/operations.ts'

type Shown = NonNullable<Task['http']>['allow']
type Given = NonNullable<TaskCreate['http']>['allow']

export function formatOrigins(allow: Shown): string {
  return allow.map(({ origin, methods }) => `${methods.join(',')} ${origin}`).join('\n')
}

/** The server names what it does not accept. */
export function parseOrigins(text: string): Given {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line) => {
      const at = line.lastIndexOf(' ')
      const origin = line.slice(at + 1)
      const methods = line
        .slice(0, Math.max(at, 0))
        .split(/[ ,]+/)
        .filter((method) => method !== '')
        .map((method) => method.toUpperCase())
      return methods.length === 0 ? { origin } : { origin, methods: methods as Given[number]['methods'] & {} }
    })
}
