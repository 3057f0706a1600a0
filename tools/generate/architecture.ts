/** The generated parts of docs/architecture.md, between markers; the prose around them is written by hand. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ERROR_KINDS, PROTOCOL_STATUS } from '#core/errors/index.ts'
import { renderLifecycle } from '#manager/index.ts'
import { ROOMS } from '../../test/architecture/rooms.ts'
import { SLICES } from '../../test/architecture/slices.ts'
import { replaceParts } from './parts.ts'

export const ARCHITECTURE = 'docs/architecture.md'
const ROOT = join(import.meta.dirname, '..', '..')

/** The document with fresh parts. Throws when a marker is gone. */
export function renderArchitecture(): string {
  const parts: Record<string, string> = {
    rooms: fenced('mermaid', renderRooms()),
    'room rules': renderRules(),
    slices: renderSlices(),
    tasks: fenced('mermaid', renderLifecycle()),
    errors: renderErrors(),
  }
  return replaceParts(ARCHITECTURE, readFileSync(join(ROOT, ARCHITECTURE), 'utf8'), parts)
}

const fenced = (language: string, text: string) => `\`\`\`${language}\n${text.trimEnd()}\n\`\`\`\n`

/**
 * An arrow points from a room to one that it imports. What follows from another arrow is left out: a room that may
 * import `devices` may import what devices stands on.
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
    ({ folder, mayImport, rule }) => `| \`${folder}/\` | ${mayImport.join(', ') || 'nothing of ours'} | ${rule} |`,
  )
  return ['| Room | May import | Because |', '|---|---|---|', ...rows, ''].join('\n')
}

function renderSlices(): string {
  return Object.entries(SLICES)
    .map(([room, slices]) => {
      const folder = ROOMS.find(({ name }) => name === room)?.folder ?? room
      const rows = Object.entries(slices).map(([slice, sentence]) => `| \`${slice}/\` | ${sentence} |`)
      return [`**\`${folder}/\`**`, '', '| Slice | What is found there |', '|---|---|', ...rows, ''].join('\n')
    })
    .join('\n')
}

function renderErrors(): string {
  const rows = ERROR_KINDS.map((kind) => {
    const { http, grpc, mqtt3Connack, mqtt5, coap, exit } = PROTOCOL_STATUS[kind]
    const connack = mqtt3Connack === undefined ? 'close' : `CONNACK ${mqtt3Connack}`
    const cells = [`\`${kind}\``, http, grpc, connack, `0x${mqtt5.toString(16).toUpperCase()}`, coap, exit]
    return `| ${cells.join(' | ')} |`
  })
  return [
    '| Kind | HTTP | gRPC | MQTT 3.1.1 at CONNECT | MQTT 5 | CoAP | Exit code |',
    '|---|---|---|---|---|---|---|',
    ...rows,
    '',
  ].join('\n')
}
