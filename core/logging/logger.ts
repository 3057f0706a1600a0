/**
 * One logger for the product (pino): readable lines on a terminal, JSON elsewhere. The output decides, not an environment
 * variable.
 */
import { pino } from 'pino'
import type { Logger } from 'pino'
import { HeldLines } from './held-lines.ts'

export type { Logger } from 'pino'

/** Loaded for terminals alone: 30 files that a service would load for nothing. */
const pretty = process.stdout.isTTY ? (await import('pino-pretty')).default : undefined

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** Fields that are redacted, in a logged object and one level below it. */
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
 * Fields that PostgreSQL adds to an error quote rows and statements, which may contain hashes and sealed secrets. `client` is the
 * connection, which would print sockets and buffers.
 */
const QUOTING_FIELDS = new Set(['detail', 'where', 'internalQuery', 'client'])

function describeError(error: Error): Record<string, unknown> {
  const described = Object.entries(pino.stdSerializers.err(error))
  return Object.fromEntries(described.filter(([field]) => !QUOTING_FIELDS.has(field)))
}

export type LoggerOptions = {
  name: string
  level: LogLevel
  /** The name of the process, where a program has several. */
  process?: string | undefined
  /** The output; defaults to stdout. Its lines are readable if it and stdout are terminals. */
  stream?: NodeJS.WritableStream & { isTTY?: boolean }
}

export function createLogger({ stream = process.stdout, ...options }: LoggerOptions): Logger {
  return pino(pinoOptions(options), outputOf(stream))
}

/** A logger whose lines wait until they are released; `onRelease` is called before held lines are written. */
export function createHeldLogger(
  { stream = process.stdout, ...options }: LoggerOptions,
  onRelease?: () => void,
): { logger: Logger; held: HeldLines } {
  const held = new HeldLines(outputOf(stream), onRelease)
  return { logger: pino(pinoOptions(options), held), held }
}

function pinoOptions({ name, level, process: processName }: Omit<LoggerOptions, 'stream'>) {
  return {
    name,
    level,
    base: { name, ...(processName === undefined ? {} : { process: processName }) },
    serializers: { err: describeError },
    redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
  }
}

function outputOf(stream: NonNullable<LoggerOptions['stream']>) {
  if (stream.isTTY !== true || pretty === undefined) return stream
  return pretty({
    destination: stream,
    sync: true,
    ignore: 'pid,hostname',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
  })
}
