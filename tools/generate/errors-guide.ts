/** The generated table of docs/guides/errors.md: the code of each kind in each protocol. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ERROR_KINDS, PROTOCOL_STATUS } from '#core/errors/index.ts'
import { replaceParts } from './parts.ts'

export const ERRORS_GUIDE = 'docs/guides/errors.md'
const ROOT = join(import.meta.dirname, '..', '..')

/** The guide with its generated table. Throws if the marker is missing. */
export function renderErrorsGuide(): string {
  return replaceParts(ERRORS_GUIDE, readFileSync(join(ROOT, ERRORS_GUIDE), 'utf8'), { numbers: renderNumbers() })
}

function renderNumbers(): string {
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
