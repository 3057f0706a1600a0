/** The generated parts of docs/architecture.md, between markers; the prose around them is written by hand. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { renderLifecycle } from '#manager/index.ts'
import { ROOMS } from '../../test/architecture/rooms.ts'
import { SLICES } from '../../test/architecture/slices.ts'
import { replaceParts } from './parts.ts'

export const ARCHITECTURE = 'docs/architecture.md'
const ROOT = join(import.meta.dirname, '..', '..')

/** The document with generated parts. Throws if a marker is missing. */
export function renderArchitecture(): string {
  const parts: Record<string, string> = {
    rooms: fenced('mermaid', renderRooms()),
    'room rules': renderRules(),
    slices: renderSlices(),
    tasks: fenced('mermaid', renderLifecycle()),
  }
  return replaceParts(ARCHITECTURE, readFileSync(join(ROOT, ARCHITECTURE), 'utf8'), parts)
}

const fenced = (language: string, text: string) => `\`\`\`${language}\n${text.trimEnd()}\n\`\`\`\n`

/**
 * An arrow points from a room to one that it imports. Implied arrows are omitted: a room that can import `devices` can
 * import the dependencies of devices.
 */
function renderRooms(): string {
  const drawn = ROOMS.filter((room) => room.isDrawn)
  const imports = new Map(drawn.map((room) => [room.name, room.mayImport]))
  const reach = (name: string): Set<string> =>
    new Set((imports.get(name) ?? []).flatMap((next) => [next, ...reach(next)]))
  const lines = drawn.flatMap(({ name, mayImport }) =>
    mayImport
      .filter((target) => !mayImport.some((other) => other !== target && reach(other).has(target)))
      .map((target) => `  ${name} --> ${target}`),
  )
  const nodes = drawn.map(({ name, folder }) => `  ${name}["${folder}/"]`)
  return ['flowchart TD', ...nodes, ...lines].join('\n')
}

function renderRules(): string {
  const rows = ROOMS.filter((room) => room.isDrawn).map(
    ({ folder, mayImport, rule }) => `| \`${folder}/\` | ${mayImport.join(', ') || 'nothing from Skein'} | ${rule} |`,
  )
  return ['| Room | May import | Because |', '|---|---|---|', ...rows, ''].join('\n')
}

function renderSlices(): string {
  return Object.entries(SLICES)
    .map(([room, slices]) => {
      const folder = ROOMS.find(({ name }) => name === room)?.folder ?? room
      const rows = Object.entries(slices).map(([slice, sentence]) => `| \`${slice}/\` | ${sentence} |`)
      return [`**\`${folder}/\`**`, '', '| Slice | Content |', '|---|---|', ...rows, ''].join('\n')
    })
    .join('\n')
}
