/**
 * What guests ask of channels while they run (task-manager.md sections 3 and 5): under the current fence, within the grants
 * of their task, and with the rights that its user has now. A publication joins its run in the statement that stores it.
 */
import type { UserPrincipal } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { hintQueue } from '#core/log/index.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskAccess } from '../access.ts'
import type { HeldRun } from '../runs/spec.ts'
import { canonicalSubtopic, coversSubtopic } from './fields.ts'
import type { Grant } from './fields.ts'

/** Stored records of a channel that the task may read, the newest first. */
export type ReadChannel = (
  channel: { domainKey: number; domainId: string; channelKey: number; channelId: string },
  query: { subtopic?: string; name?: string; from?: number; to?: number; limit: number },
) => Promise<unknown[]>

export type GuestPublish = { channelId: string; subtopic: string; payload: Uint8Array }
export type GuestRead = {
  channelId: string
  subtopic: string
  name: string
  fromSeconds?: number | undefined
  toSeconds?: number | undefined
  limit: number
}

export type GuestsDeps = { database: Database; bus: Bus; access: TaskAccess; readChannel: ReadChannel | undefined }
export type Guests = ReturnType<typeof createGuests>

export const MAX_PAYLOAD_BYTES = 256 * 1024
const MAX_RECORDS_READ = 1_000

export function createGuests({ database, bus, access, readChannel }: GuestsDeps) {
  async function userOf(
    run: HeldRun,
  ): Promise<{ user: UserPrincipal; domainId: string; domainKey: number; userKey: number }> {
    const { domain_id: domainId, domain_key: domainKey, user_key: userKey } = run.spec
    const user = userKey === undefined ? undefined : await access.findUser(userKey)
    if (user === undefined || domainId === null || domainKey === undefined || userKey === undefined)
      throw new ServiceError('forbidden', 'the user that the task acts as is gone or disabled')
    return { user, domainId, domainKey, userKey }
  }

  return {
    /** Resolves when it is stored. Throws `conflict` when the fence is stale. */
    async publish(run: HeldRun, callId: number, { channelId, subtopic: given, payload }: GuestPublish): Promise<void> {
      const subtopic = canonicalSubtopic(given, 'subtopic')
      requireGrant(run, 'publish', channelId, subtopic)
      const text = requirePack(payload)
      const { user, domainId, domainKey, userKey } = await userOf(run)
      await access.requireChannel(user, 'publish', domainId, channelId)
      const { rows } = await sql<{ is_current: boolean }>`
        WITH held AS MATERIALIZED (
          SELECT r.id, r.fence, r.task_key FROM runs r WHERE r.id = ${run.id} AND r.fence = ${run.fence}
            AND r.state IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown}) FOR KEY SHARE),
        stored AS (
          INSERT INTO task_publications (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id)
          SELECT ${domainKey}, ${userKey}, ${channelId}, ${subtopic}, ${text}, held.task_key, held.id, held.fence, ${callId} FROM held
          ON CONFLICT ON CONSTRAINT task_publications_call_key DO NOTHING)
        SELECT EXISTS (SELECT 1 FROM held) AS is_current`.execute(database.db)
      if (rows[0]?.is_current !== true)
        throw new ServiceError('conflict', 'the run was given to somebody else or has ended')
      hintQueue(bus, 'task_publications')
    },

    /** Records as JSON. Throws `forbidden` without a grant, `unavailable` where nobody reads channels. */
    async read(run: HeldRun, call: GuestRead): Promise<string> {
      const subtopic = canonicalSubtopic(call.subtopic, 'subtopic')
      requireGrant(run, 'read', call.channelId, subtopic)
      if (call.limit < 1 || call.limit > MAX_RECORDS_READ)
        throw new ServiceError('malformed', `limit must be 1 to ${MAX_RECORDS_READ}`)
      const { user, domainId, domainKey } = await userOf(run)
      const channelKey = await access.requireChannel(user, 'subscribe', domainId, call.channelId)
      if (readChannel === undefined) throw new ServiceError('unavailable', 'this manager does not read channels')
      const records = await readChannel(
        { domainKey, domainId, channelKey, channelId: call.channelId },
        {
          ...(subtopic === '' ? {} : { subtopic }),
          ...(call.name === '' ? {} : { name: call.name }),
          ...(call.fromSeconds === undefined ? {} : { from: call.fromSeconds }),
          ...(call.toSeconds === undefined ? {} : { to: call.toSeconds }),
          limit: call.limit,
        },
      )
      return JSON.stringify(records)
    },
  }
}

function requireGrant(run: HeldRun, kind: Grant['kind'], channelId: string, subtopic: string): void {
  const grants = run.spec.grants ?? []
  const isGranted = grants.some((grant) => {
    const granted = (grant.subtopic ?? '').replaceAll('/', '.')
    return grant.kind === kind && grant.channel_id === channelId && coversSubtopic(granted, subtopic)
  })
  if (!isGranted) throw new ServiceError('forbidden', `the task has no grant to ${kind} there`)
}

/** The text of a SenML pack; what a pack is in full is judged where it is stored. */
function requirePack(payload: Uint8Array): string {
  if (payload.byteLength > MAX_PAYLOAD_BYTES)
    throw new ServiceError('too_large', `a message may have at most ${MAX_PAYLOAD_BYTES} bytes`)
  const refusal = new ServiceError('malformed', 'the payload must be a SenML pack: a JSON array of records')
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(payload)
    const pack: unknown = JSON.parse(text)
    const isPack =
      Array.isArray(pack) &&
      pack.length > 0 &&
      pack.every((record) => typeof record === 'object' && record !== null && !Array.isArray(record))
    if (isPack && !text.includes('\0')) return text
  } catch {
    throw refusal
  }
  throw refusal
}
