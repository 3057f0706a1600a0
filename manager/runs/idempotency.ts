/** Idempotency-Key of a start or an invocation: the same key starts one run (contract decision 54). */
import { createHash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { ServiceError } from '#core/errors/index.ts'
import type { TaskCaller } from '../access/access.ts'
import type { StartRequest } from '../model/start.ts'
import type { RunBody } from './schema.ts'

const MAX_IDEMPOTENCY_KEY_CHARS = 255

/** Scope: caller and task (contract decision 54). All callers without a principal share one scope. */
export function idempotencyOf(
  caller: TaskCaller,
  key: string | undefined,
  body: RunBody | null | undefined,
): StartRequest['idempotency'] {
  if (key === undefined) return undefined
  if (key.length === 0 || key.length > MAX_IDEMPOTENCY_KEY_CHARS) {
    throw new ServiceError('malformed', `Idempotency-Key must be between 1 and ${MAX_IDEMPOTENCY_KEY_CHARS} characters`)
  }
  const { inputs, cli_args: cliArgs, env, stdin, bytes } = body ?? {}
  const canonical = JSON.stringify([
    inputs ?? null,
    cliArgs ?? null,
    Object.entries(env ?? {}).toSorted(([left], [right]) => (left < right ? -1 : 1)),
    ...(stdin === undefined && bytes === undefined ? [] : [stdin ?? null, bytes ?? null]),
  ])
  return { userKey: caller?.key ?? 0, key, bodyDigest: createHash('sha256').update(canonical).digest('hex') }
}

/** The header; undefined without it. */
export function idempotencyKeyOf({ headers }: { headers: IncomingHttpHeaders }): string | undefined {
  const key = headers['idempotency-key']
  return Array.isArray(key) ? key[0] : key
}
