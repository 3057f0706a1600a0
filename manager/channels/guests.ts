/**
 * What guests ask of channels while they run (task-manager.md sections 3 and 5): under the current fence, within the grants
 * of their task, and with the rights that its user has now. A publication joins its run in the statement that stores it.
 */
import type { UserPrincipal } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { HeldRun } from '../model/run.ts'
import { canonicalSubtopic } from '../model/channel-fields.ts'
import type { Grant } from '../model/channel-fields.ts'
import { coversSubtopic, hintPublications, publishCall } from '#queues/index.ts'
import type { ReadChannel } from '#queues/index.ts'

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

const MAX_PAYLOAD_BYTES = 256 * 1024
const MAX_RECORDS_READ = 1_000
/** Of a run that may publish. */
const OPEN_STATES = [TASK_STATE.scheduled, TASK_STATE.running, TASK_STATE.unknown]

/** Calls of guests that are worked on at a time: of all, and of one domain. */
const MAX_CALLS = 1_000
const MAX_CALLS_PER_DOMAIN = 250
/** Those that wait; a guest is told when there are more, or when its call has waited for so long. */
const MAX_WAITING_PER_DOMAIN = 2_000
const CALL_WAIT_MS = 10_000

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

  const calls = new Slots({
    what: 'calls of guests',
    max: MAX_CALLS,
    share: MAX_CALLS_PER_DOMAIN,
    waitMs: CALL_WAIT_MS,
    maxWaiting: MAX_WAITING_PER_DOMAIN,
  })
  const guests = {
    /** Resolves when it is stored. Throws `conflict` when the fence is stale. */
    async publish(run: HeldRun, callId: number, { channelId, subtopic: given, payload }: GuestPublish): Promise<void> {
      const subtopic = canonicalSubtopic(given, 'subtopic')
      requireGrant(run, 'publish', channelId, subtopic)
      const text = requirePack(payload)
      const { user, domainId, domainKey, userKey } = await userOf(run)
      await access.requireChannel(user, 'publish', domainId, channelId)
      const isStored = await publishCall(database.db, {
        domainKey,
        userKey,
        channelId,
        subtopic,
        payload: text,
        runId: run.id,
        fence: run.fence,
        callId,
        openStates: OPEN_STATES,
      })
      if (!isStored) throw new ServiceError('conflict', 'the run was given to somebody else or has ended')
      hintPublications(bus)
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
  return {
    publish: (run: HeldRun, callId: number, message: GuestPublish) =>
      calls.run(run.spec.domain_id, () => guests.publish(run, callId, message)),
    read: (run: HeldRun, call: GuestRead) => calls.run(run.spec.domain_id, () => guests.read(run, call)),
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
