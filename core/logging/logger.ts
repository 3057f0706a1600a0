/**
 * One logger for the product (pino): readable lines on a terminal, JSON elsewhere. Whether it is a terminal decides,
 * not an environment name, because a developer reads and a collector parses.
 */
import { pino } from 'pino'
import type { Logger } from 'pino'
import pretty from 'pino-pretty'

export type { Logger } from 'pino'

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** Fields that never reach a log line, in a logged object and in the objects in it. */
const SECRET_FIELDS = [
  'authorization',
  'secret',
  'password',
  'token',
  'access_token',
  'refresh_token',
  'external_key',
  'client_key',
]

/**
 * What PostgreSQL adds to an error quotes rows and statements, and rows hold hashes and sealed secrets; its client adds
 * itself, which is pages of sockets and buffers.
 */
const QUOTING_FIELDS = new Set(['detail', 'where', 'internalQuery', 'client'])

function describeError(error: Error): Record<string, unknown> {
  const described = Object.entries(pino.stdSerializers.err(error))
  return Object.fromEntries(described.filter(([field]) => !QUOTING_FIELDS.has(field)))
}

export type LoggerOptions = {
  name: string
  level: LogLevel
  /** Where lines go; default is stdout. */
  stream?: NodeJS.WritableStream & { isTTY?: boolean }
}

export function createLogger({ name, level, stream = process.stdout }: LoggerOptions): Logger {
  const options = {
    name,
    level,
    base: { name },
    serializers: { err: describeError },
    redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
  }
  if (stream.isTTY !== true) return pino(options, stream)
  return pino(
    options,
    pretty({
      destination: stream,
      sync: true,
      ignore: 'pid,hostname',
      translateTime: 'SYS:HH:MM:ss.l',
      singleLine: true,
    }),
  )
}
