/** What a user says of a command, and what the server gets. Pure. */
import { parseJson } from '../../../api/json.ts'
import type { CommandCreate } from '../../../api/operations.ts'

export type CommandForm = {
  readonly name: string
  /** JSON, or nothing. */
  readonly payload: string
  readonly timeout: string
  readonly life: string
}

export const NEW_COMMAND: CommandForm = { name: '', payload: '', timeout: '1m', life: '24h' }

export const LIVES = [
  ['5m', 'in 5 minutes'],
  ['1h', 'in 1 hour'],
  ['24h', 'in 24 hours'],
  ['168h', 'in 7 days'],
  ['720h', 'in 30 days'],
] as const

const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/
/** So that the longest life is within the limit of a server whose clock is behind. */
const MARGIN_MS = 30_000

export class CommandFault extends Error {
  readonly field: 'name' | 'payload'

  constructor(field: CommandFault['field'], message: string) {
    super(message)
    this.field = field
  }
}

type Payload = Exclude<CommandCreate['payload'], undefined>

/** Throws `CommandFault`. The server checks the time-out. */
export function commandOf({ name, payload, timeout, life }: CommandForm, nowMs: number): CommandCreate {
  if (!NAME.test(name))
    throw new CommandFault('name', 'Use 1 to 64 letters, digits, dots, underscores and hyphens, such as reboot')
  const amount = Number.parseInt(life, 10) * (life.endsWith('h') ? HOUR_MS : MINUTE_MS)
  return {
    name,
    ...(payload.trim() === '' ? {} : { payload: payloadOf(payload) }),
    timeout: timeout.trim(),
    // The server has the same default, by its own clock.
    ...(life === NEW_COMMAND.life ? {} : { expires_at: new Date(nowMs + amount - MARGIN_MS).toISOString() }),
  }
}

function payloadOf(text: string): Payload {
  try {
    return parseJson(text) as Payload
  } catch (error) {
    throw new CommandFault('payload', `The payload is not JSON: ${(error as Error).message}`)
  }
}

/** Says that two requests are one. */
export const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join('-')
