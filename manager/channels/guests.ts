/**
 * Calls of running guests about channels and the state of their task (task-manager.md sections 3 and 5): under the current fence, within the grants of the
 * task, and with the current permissions of its user. One statement stores a publication and links it to its run.
 */
import type { UserPrincipal } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { isOutage, translateDatabaseError } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { growingPauses } from '#core/rounds.ts'
import { Slots } from '#core/slots.ts'
import { sleep } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskAccess } from '../access/access.ts'
import { MAX_STATE_KEYS_LISTED, MAX_STATE_KEYS_READ, refusalOfKey } from '#guests/wasm/index.ts'
import { listStateKeys, readStateOfRun } from '../store/task-state.ts'
import { requireActingUser } from './acting-user.ts'
import { NO_STATE_OF_CLIENT, holdsPublications, mayHaveStateOf, type AssignedRun } from '../model/run.ts'
import { canonicalSubtopic } from '../model/channel-fields.ts'
import type { Grant } from '../model/channel-fields.ts'
import { requirePack } from '../model/publication.ts'
import { findGrants, pauseFor } from '../store/pauses.ts'
import { HELD_CALLS, coversSubtopic, hintPublications, holdCall, publishCall, whyUnusable } from '#queues/index.ts'
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

const MAX_RECORDS_READ = 1_000
/** States in which a run can publish. */
const OPEN_STATES = [TASK_STATE.scheduled, TASK_STATE.running, TASK_STATE.unknown]

/** Calls of guests that are processed at the same time: in total, and per domain. */
const MAX_CALLS = 1_000
const MAX_CALLS_PER_DOMAIN = 250
/** Waiting calls; a call beyond the limit or with a longer wait fails. */
const MAX_WAITING_PER_DOMAIN = 2_000
const CALL_WAIT_MS = 10_000
/** The shortest and the longest pause between two attempts of a call while the database is unavailable. */
const MIN_OUTAGE_PAUSE_MS = 50
const MAX_OUTAGE_PAUSE_MS = 1_000

export function createGuests({ database, bus, access, readChannel }: GuestsDeps) {
  /**
   * The key of the channel, and the user who acts. A grantor without the right pauses the task, unless another user has granted the
   * task this channel by now (contract decision 88).
   */
  async function enter(run: AssignedRun, kind: Grant['kind'], channelId: string, subtopic: string) {
    const action = kind === 'publish' ? 'publish' : 'subscribe'
    const attempt = async (userKey: number | null | undefined) => {
      const found = await userOf(run, userKey)
      return { ...found, channelKey: await access.requireChannel(found.user, action, found.domainId, channelId) }
    }
    try {
      return await attempt(run.spec.user_key)
    } catch (error) {
      const { domain_id: domainId, user_key: grantorKey } = run.spec
      if (kindOf(error) !== 'forbidden' || domainId === null || grantorKey === undefined) throw error
      const now = await findGrants(database.db, run.taskKey)
      const isGranted = now !== undefined && covers(now.grants, kind, channelId, subtopic)
      if (isGranted && now.userKey !== grantorKey) return await attempt(now.userKey)
      const { message: reason } = error as ServiceError
      if ((await whyUnusable(database.db, domainId, channelId)) === undefined)
        await pauseFor(database, { taskKey: run.taskKey, grantorKey, reason })
      throw error
    }
  }

  async function userOf(
    run: AssignedRun,
    userKey: number | null | undefined,
  ): Promise<{ user: UserPrincipal; domainId: string; domainKey: number }> {
    const { domain_id, domain_key: domainKey } = run.spec
    if (domainKey === undefined) throw new ServiceError('forbidden', 'a task of no domain has no channels')
    return { ...(await requireActingUser(access, { userKey, domainId: domain_id })), domainKey }
  }

  const calls = new Slots({
    what: 'calls of guests',
    max: MAX_CALLS,
    share: MAX_CALLS_PER_DOMAIN,
    waitMs: CALL_WAIT_MS,
    maxWaiting: MAX_WAITING_PER_DOMAIN,
  })
  const guests = {
    /** Resolves when the message is stored; that of a run with a trigger is published when the run has completed. Throws `conflict` if the fence is stale. */
    async publish(
      run: AssignedRun,
      callId: number,
      { channelId, subtopic: given, payload }: GuestPublish,
    ): Promise<void> {
      const subtopic = canonicalSubtopic(given, 'subtopic')
      requireGrant(run, 'publish', channelId, subtopic)
      const text = requirePack(payload)
      const { user, domainKey } = await enter(run, 'publish', channelId, subtopic)
      // What a message caused goes out with the result of the run, or not at all; so does what a run published that may be repeated.
      const isHeld = holdsPublications(run.spec)
      if (isHeld && callId > HELD_CALLS)
        throw new ServiceError(
          'rate_limited',
          `a run of a trigger, or of a module with state, can publish in its first ${HELD_CALLS} calls`,
        )
      const isStored = await (isHeld ? holdCall : publishCall)(database.db, {
        domainKey,
        userKey: user.key,
        channelId,
        subtopic,
        payload: text,
        runId: run.id,
        fence: run.fence,
        callId,
        openStates: OPEN_STATES,
      })
      if (!isStored) throw new ServiceError('conflict', 'the run was assigned to another worker or has ended')
      if (!isHeld) hintPublications(bus)
    },

    /** Records as JSON. Throws `forbidden` without a grant. */
    async read(run: AssignedRun, call: GuestRead, readRecords: ReadChannel): Promise<string> {
      const subtopic = canonicalSubtopic(call.subtopic, 'subtopic')
      requireGrant(run, 'read', call.channelId, subtopic)
      if (call.limit < 1 || call.limit > MAX_RECORDS_READ)
        throw new ServiceError('malformed', `limit must be between 1 and ${MAX_RECORDS_READ}`)
      const { domainId, domainKey, channelKey } = await enter(run, 'read', call.channelId, subtopic)
      const records = await readRecords(
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
  /** `isAwaited`: whether the run goes on and its worker waits for the answer. */
  async function inTurn<T>(run: AssignedRun, isAwaited: () => boolean, call: () => Promise<T>): Promise<T> {
    return await calls.run(run.spec.domain_id, () => throughOutages(call, isAwaited))
  }
  return {
    /** Values of the state as they are now; throws `forbidden` for the bucket of a client that is not the publisher of the message of the run. */
    async stateValues(
      run: AssignedRun,
      { client, keys }: { client: string; keys: string[] },
      isAwaited: () => boolean,
    ) {
      requireClient(run, client)
      if (keys.length > MAX_STATE_KEYS_READ)
        throw new ServiceError('malformed', `at most ${MAX_STATE_KEYS_READ} keys are read at a time`)
      for (const key of keys) requireKey(key)
      return await inTurn(run, isAwaited, () => readStateOfRun(database.db, run.taskKey, client, keys))
    },
    async stateKeys(run: AssignedRun, { client, after }: { client: string; after: string }, isAwaited: () => boolean) {
      requireClient(run, client)
      if (after !== '') requireKey(after)
      return await inTurn(run, isAwaited, () =>
        listStateKeys(database.db, { taskKey: run.taskKey, client, after, limit: MAX_STATE_KEYS_LISTED }),
      )
    },
    publish: (run: AssignedRun, callId: number, message: GuestPublish, isAwaited: () => boolean) =>
      inTurn(run, isAwaited, () => guests.publish(run, callId, message)),
    async read(run: AssignedRun, call: GuestRead, isAwaited: () => boolean) {
      if (readChannel === undefined) throw new ServiceError('unavailable', 'this manager cannot read channels')
      return await inTurn(run, isAwaited, () => guests.read(run, call, readChannel))
    },
  }
}

/**
 * Repeats a call while the database is unavailable and its run goes on: a publication may be stored already, and its number makes the repetition
 * safe. Throws errors of services only, and bugs.
 */
async function throughOutages<T>(call: () => Promise<T>, isAwaited: () => boolean): Promise<T> {
  const pauses = growingPauses(MIN_OUTAGE_PAUSE_MS, MAX_OUTAGE_PAUSE_MS)
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!isOutage(error) || !isAwaited()) throw translateDatabaseError(error)
    }
    await sleep(pauses.next(true))
  }
}

function requireKey(key: string): void {
  const refusal = refusalOfKey(key)
  if (refusal !== undefined) throw new ServiceError('malformed', refusal)
}

function requireClient({ spec }: AssignedRun, client: string): void {
  const refusal = client === '' ? undefined : refusalOfKey(client)
  if (refusal !== undefined || !mayHaveStateOf(spec, client)) throw new ServiceError('forbidden', NO_STATE_OF_CLIENT)
}

function requireGrant(run: AssignedRun, kind: Grant['kind'], channelId: string, subtopic: string): void {
  if (!covers(run.spec.grants ?? [], kind, channelId, subtopic))
    throw new ServiceError('forbidden', `the task has no grant to ${kind} on this channel and subtopic`)
}

function covers(grants: readonly Grant[], kind: Grant['kind'], channelId: string, subtopic: string): boolean {
  return grants.some((grant) => {
    const granted = (grant.subtopic ?? '').replaceAll('/', '.')
    return grant.kind === kind && grant.channel_id === channelId && coversSubtopic(granted, subtopic)
  })
}
