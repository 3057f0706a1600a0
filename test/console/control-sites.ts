/** The controls of the console that change something: each place of its source that sends such an operation. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const CONSOLE = join(import.meta.dirname, '..', '..', 'console')
const GENERATED = 'api/operations.ts'

/** As an argument of `call`, or as the value of an expression; not in a type. */
const SITE = /(?<![<\w])'((?:POST|PUT|PATCH|DELETE) \/[^' ]*)'/g

export type Control = `${string}.${'ts' | 'tsx'} ${'POST' | 'PUT' | 'PATCH' | 'DELETE'} /${string}`

export function consoleFiles(): { path: string; text: string }[] {
  return globSync('**/*.{ts,tsx}', { cwd: CONSOLE })
    .filter((path) => path !== GENERATED)
    .map((path) => ({ path, text: readFileSync(join(CONSOLE, path), 'utf8') }))
}

/** Sorted; a file that sends an operation in two places has it twice. */
export function controlsOfTheConsole(): string[] {
  return consoleFiles()
    .flatMap(({ path, text }) => [...text.matchAll(SITE)].map(([, operation = '']) => `${path} ${operation}`))
    .toSorted()
}

/** Whether a request is one of an operation: `POST /{domain_id}/clients`. */
export function isOperation(operation: string, method: string, path: string): boolean {
  const [wanted = '', template = ''] = operation.split(' ')
  const pattern = template.replaceAll(/\{\w+\}/g, '[^/]+')
  return method === wanted && new RegExp(`^${pattern}$`).test(path)
}
