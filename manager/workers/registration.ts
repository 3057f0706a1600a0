/**
 * Register: a new worker presents a join token, a known one its secret. Each registration raises the session epoch, so
 * that older sessions of the worker are void at every manager.
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newToken } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { RegisterRequest } from '#proto/index.ts'
import { managedEntry } from '#api/identity/index.ts'
import { digestSecret } from '../model/worker-secret.ts'
import { writeRecords } from '../store/journal.ts'
import { requireCertificate } from './certificates.ts'

export type Registered = {
  key: number
  id: string
  /** The secret is returned once, to a new worker. */
  secret: string | undefined
  epoch: number
  domainId: string | null
  isDraining: boolean
}

export type RegistrationDeps = {
  database: Database
  newId: () => string
  managerId: string
  leaseMs: () => number
  /** SHA-256 of the certificate of the connection; 'plain': no TLS. */
  shown: string | undefined
}

const MAX_LABELS = 64
const MAX_RUNTIMES = 32
const MAX_CACHED_DIGESTS = 1_000
const MAX_RUNTIME_CHARS = 64
const MAX_TEXT_CHARS = 256
const MAX_SLOTS = 10_000
const MAX_BACKLOG = 100_000

/**
 * Throws `unauthenticated` if secret and token are unknown, a certificate is missing, or the worker was revoked and
 * presents no later token; `malformed` for values out of range.
 */
export async function registerWorker(deps: RegistrationDeps, request: RegisterRequest): Promise<Registered> {
  requireFacts(request)
  // One statement for each worker that comes back, without a transaction around it: after a loss of the manager, all of them do at once.
  if (deps.shown === 'plain') {
    const known = await renew(deps.database.db, deps, request)
    if (known !== undefined) return known
  }
  return await deps.database.transaction(async (tx) => {
    const known = deps.shown === 'plain' ? undefined : await renew(tx, deps, request)
    if (known !== undefined) return known
    const revokedAt = await findRevocation(tx, request)
    const token = await useToken(tx, request.joinToken, revokedAt)
    if (token === undefined && revokedAt !== undefined) {
      throw new ServiceError(
        'unauthenticated',
        'this worker was revoked; it can join as a new worker with a join token that was created afterwards',
      )
    }
    if (token === undefined) {
      throw new ServiceError('unauthenticated', 'unknown join token or wrong worker secret')
    }
    return await insert(tx, deps, request, token)
  })
}

function requireFacts(request: RegisterRequest): void {
  const refuse = (rule: string): never => {
    throw new ServiceError('malformed', `the registration ${rule}`)
  }
  const labels = Object.entries(request.labels)
  if (request.bootId === '') refuse('must have a boot id')
  if (request.slots < 1 || request.slots > MAX_SLOTS) refuse(`must have 1 to ${MAX_SLOTS} slots`)
  if (request.backlog > MAX_BACKLOG) refuse(`must have a backlog of at most ${MAX_BACKLOG}`)
  if (labels.length > MAX_LABELS) refuse(`must have at most ${MAX_LABELS} labels`)
  if (request.runtimes.length > MAX_RUNTIMES) refuse(`must have at most ${MAX_RUNTIMES} runtimes`)
  if (request.runtimes.some((name) => name === '' || name.length > MAX_RUNTIME_CHARS))
    refuse(`must have runtimes with names of 1 to ${MAX_RUNTIME_CHARS} characters`)
  if (request.cachedDigests.length > MAX_CACHED_DIGESTS) refuse(`must have at most ${MAX_CACHED_DIGESTS} digests`)
  const texts = [
    ...request.cachedDigests,
    request.name,
    request.bootId,
    request.version,
    request.os,
    request.arch,
    request.isolation,
    request.modulePeerAddress,
    ...request.runtimes,
    ...labels.flat(),
  ]
  if (texts.some((text) => text.length > MAX_TEXT_CHARS || text.includes('\0'))) {
    refuse(`must have strings of at most ${MAX_TEXT_CHARS} characters without NUL`)
  }
}

/** The facts of a registration, as columns. */
function factColumns(request: RegisterRequest) {
  return sql`name = ${request.name}, version = ${request.version}, labels = ${JSON.stringify(request.labels)}::jsonb,
    os = ${request.os}, arch = ${request.arch}, cpu_cores = ${request.cpuCores}, memory_bytes = ${Number(request.memoryBytes)},
    slots = ${request.slots}, backlog = ${request.backlog}, runtimes = ${request.runtimes}::text[],
    isolation = ${request.isolation}, platform_only = ${request.platformOnly}`
}

type WorkerRow = { key: number; id: string; session_epoch: number; domain_id: string | null; draining: boolean }

// Hello writes the boot id, and reconciles the runs of the former process.
async function renew(tx: Queryable, deps: RegistrationDeps, request: RegisterRequest): Promise<Registered | undefined> {
  if (!isId(request.workerId) || request.workerSecret === '') return undefined
  const { rows } = await sql<WorkerRow>`UPDATE workers SET ${factColumns(request)},
      session_epoch = session_epoch + 1, manager_id = ${deps.managerId},
      lease_until = now() + make_interval(secs => ${deps.leaseMs() / 1000}::float8)
    WHERE id = ${request.workerId} AND secret_hash = ${digestSecret(request.workerSecret)} AND revoked_at IS NULL
    RETURNING key, id, session_epoch, domain_id, draining`.execute(tx)
  const row = rows[0]
  if (row === undefined) return undefined
  if (deps.shown !== 'plain') await requireCertificate(tx, row.key, deps.shown)
  return {
    key: row.key,
    id: row.id,
    secret: undefined,
    epoch: row.session_epoch,
    domainId: row.domain_id,
    isDraining: row.draining,
  }
}

type Token = { domain_key: number | null; domain_id: string | null }

/** Returns the time at which the presented worker was revoked. It still has its join token and must not return with it. */
async function findRevocation(
  tx: Transaction,
  { workerId, workerSecret }: RegisterRequest,
): Promise<string | undefined> {
  if (!isId(workerId) || workerSecret === '') return undefined
  const { rows } = await sql<{ revoked_at: string }>`SELECT revoked_at::text FROM workers
    WHERE id = ${workerId} AND secret_hash = ${digestSecret(workerSecret)} AND revoked_at IS NOT NULL`.execute(tx)
  return rows[0]?.revoked_at
}

async function useToken(tx: Transaction, joinToken: string, madeAfter: string | undefined): Promise<Token | undefined> {
  if (joinToken === '') return undefined
  const hash = digestSecret(secretOf(joinToken))
  const { rows } = await sql<Token>`UPDATE worker_tokens SET uses_left = uses_left - 1
    WHERE token_hash = ${hash} AND (expires_at IS NULL OR expires_at > now()) AND (uses_left IS NULL OR uses_left > 0)
      AND created_at > coalesce(${madeAfter ?? null}::timestamptz, '-infinity')
    RETURNING domain_key, domain_id`.execute(tx)
  return rows[0]
}

/**
 * `<fingerprint>.<secret>`: the worker checks the fingerprint of the server's certificate; the manager checks only the
 * secret.
 */
function secretOf(joinToken: string): string {
  return joinToken.slice(joinToken.lastIndexOf('.') + 1)
}

async function insert(
  tx: Transaction,
  deps: RegistrationDeps,
  request: RegisterRequest,
  token: Token,
): Promise<Registered> {
  const secret = newToken()
  const id = deps.newId()
  const { rows } =
    await sql<WorkerRow>`INSERT INTO workers (id, domain_key, domain_id, name, secret_hash, boot_id, version,
      labels, os, arch, cpu_cores, memory_bytes, slots, backlog, runtimes, isolation, platform_only, session_epoch, manager_id, lease_until,
      last_alive_at, alive_history)
    VALUES (${id}, ${token.domain_key}, ${token.domain_id}, ${request.name}, ${digestSecret(secret)}, ${request.bootId},
      ${request.version}, ${JSON.stringify(request.labels)}::jsonb, ${request.os}, ${request.arch}, ${request.cpuCores},
      ${Number(request.memoryBytes)}, ${request.slots}, ${request.backlog}, ${request.runtimes}::text[],
      ${request.isolation}, ${request.platformOnly}, 1, ${deps.managerId},
      now() + make_interval(secs => ${deps.leaseMs() / 1000}::float8), now(), ARRAY[now()])
    RETURNING key, id, session_epoch, domain_id, draining`.execute(tx)
  const row = rows[0]
  if (row === undefined) throw new Error('the worker was not inserted')
  const worker = { key: row.key, id, name: request.name, domainKey: token.domain_key }
  await writeRecords(tx, [{ actor: 'system', entry: managedEntry(worker, { type: 'worker', change: 'create' }) }])
  return {
    key: row.key,
    id: row.id,
    secret,
    epoch: row.session_epoch,
    domainId: row.domain_id,
    isDraining: row.draining,
  }
}
