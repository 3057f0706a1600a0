/**
 * One session of one worker: the order of its messages, and what each of them changes. Hello is settled before anything
 * else is read; afterwards messages are handed to the run writer in the order of their arrival.
 */
import { status } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { RejectReason, sessionRequests, taskStateFromWire, TASK_STATE } from '#proto/index.ts'
import type { GuestCall, Hello, ServerDuplexStream, SessionRequest, SessionResponse } from '#proto/index.ts'
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { GuestReplySchema } from '#proto/index.ts'
import type { Guests } from '../channels/guests.ts'
import { heldRun } from '../runs/end-runs.ts'
import type { HeldRun } from '../runs/spec.ts'
import type { RunOutput } from '../runs/output.ts'
import type { RunWriter } from '../runs/writer.ts'
import type { LeaseKeeper } from '../workers/leases.ts'
import type { Cluster } from './cluster.ts'
import { grpcFailure } from './failure.ts'
import { fromRef, fromResult, toRef } from './translate.ts'
import { WorkerSession, type WorkerFacts } from './worker-session.ts'

export type SessionDeps = {
  cluster: Cluster
  writer: RunWriter
  leases: LeaseKeeper
  output: RunOutput
  guests: Guests
  logger: Logger
  /** The worker behind a Hello; throws `unauthenticated`, undefined when its epoch is void. */
  findWorker: (hello: Hello, call: SessionCall) => Promise<WorkerFacts | undefined>
}

export type SessionCall = ServerDuplexStream<SessionRequest, SessionResponse>

/** Runs of one heartbeat that are said to wait for their component. */
const MAX_PREPARING = 1_000
/** The first message must have come by then. */
const HELLO_DEADLINE_MS = 10_000

/** Serves one stream until it ends; never throws. */
export async function serveSession(deps: SessionDeps, call: SessionCall): Promise<void> {
  let session: WorkerSession | undefined
  try {
    const messages = sessionRequests(call)
    const first = await withDeadline(messages.next(), HELLO_DEADLINE_MS, 'the Hello of a worker')
    if (first.done === true) return
    if (first.value.message.case !== 'hello')
      throw new ServiceError('malformed', 'the first message of a session must be Hello')
    session = await openSession(deps, call, first.value.message.value)
    for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
      if (!session.isAlive) throw voidEpoch()
      receive(deps, session, next.value)
    }
    call.end()
  } catch (error) {
    // A broken stream is nothing to answer; anything else is told to the worker.
    if (call.cancelled) return
    const failure = grpcFailure(error)
    if (failure.code === status.INTERNAL) deps.logger.error({ err: error, worker: session?.name }, 'a session failed')
    else deps.logger.info({ worker: session?.name, reason: failure.details }, 'a session was refused')
    call.emit('error', failure)
  } finally {
    if (session !== undefined) leave(deps, session)
  }
}

function voidEpoch(): ServiceError {
  return new ServiceError('conflict', 'the session epoch is void: register again')
}

async function openSession(deps: SessionDeps, call: SessionCall, hello: Hello): Promise<WorkerSession> {
  const { cluster, writer, leases, logger } = deps
  const facts = await deps.findWorker(hello, call)
  if (facts === undefined) throw voidEpoch()
  const before = cluster.find(facts.key)
  if (before !== undefined) cluster.remove(before)
  const session = new WorkerSession(facts, monotonicMs(), (message) => {
    if (session.isAlive) call.write(message)
  })
  const settled = await writer.hello(
    session,
    {
      bootId: hello.bootId,
      running: hello.running.map((held) => ({
        run: fromRef(held.run),
        state: taskStateFromWire(held.state) ?? TASK_STATE.scheduled,
      })),
      spooled: hello.spooled.map(fromRef),
    },
    leases.leaseMs(),
  )
  if (settled === undefined) throw voidEpoch()
  session.tell({
    case: 'welcome',
    value: {
      keep: settled.keep.map(toRef),
      stop: settled.stop.map(toRef),
      resend: settled.resend.map(toRef),
      acknowledged: settled.acknowledged.map(toRef),
    },
  })
  if (session.isDrainAsked) session.askDrain(true)
  leases.beat(session)
  cluster.add(session)
  logger.info(
    { worker: session.name, id: session.id, slots: session.slots, runs: settled.keep.length },
    'a worker joined',
  )
  void writer.claim().catch(() => undefined)
  return session
}

/** The stream is gone: no new work, but the lease and its runs stay until it ends or the worker is back. */
function leave({ cluster, logger }: SessionDeps, session: WorkerSession): void {
  session.isSuspect = true
  session.lastBeatMs = Math.min(session.lastBeatMs, monotonicMs())
  cluster.remove(session)
  logger.info({ worker: session.name }, 'a worker left its session')
}

const REJECTIONS: Readonly<Record<RejectReason, string>> = {
  [RejectReason.UNSPECIFIED]: 'no reason given',
  [RejectReason.NO_SLOT]: 'no slot was free',
  [RejectReason.DRAINING]: 'the worker drains',
  [RejectReason.NO_RUNTIME]: 'the worker does not have the runtime',
  [RejectReason.RUNNER_KILLED]: 'its runner was killed because of another run',
  [RejectReason.ISOLATION]: 'its isolation is too weak for the task of a domain',
  [RejectReason.CROWDED]: 'too many components of the domain wait to be transpiled',
}

function receive(deps: SessionDeps, session: WorkerSession, request: SessionRequest): void {
  const { writer, leases, cluster, output, logger } = deps
  const failed = (error: unknown) =>
    logger.warn({ err: error, worker: session.name }, 'what a worker reported could not be written')
  const { message } = request
  switch (message.case) {
    case 'heartbeat': {
      const beat = message.value
      session.freeSlots = beat.freeSlots
      for (const digest of beat.cachedDigestsAdded) session.rememberDigest(digest)
      for (const digest of beat.cachedDigestsRemoved) session.cachedDigests.delete(digest)
      session.preparing = new Map(
        beat.preparing.slice(0, MAX_PREPARING).flatMap(({ run, position }) => {
          const held = heldRun(session, fromRef(run))
          return held === undefined ? [] : [[held.id, position] as const]
        }),
      )
      if (session.crowdedDomains.size > 0) {
        session.crowdedDomains.clear()
        cluster.changed()
        writer.claim().catch(failed)
      }
      leases.beat(session)
      session.repeatUnconfirmed()
      cluster.touch(session)
      cluster.flush()
      session.tell({
        case: 'leaseRenewed',
        value: {
          sequence: beat.sequence,
          leaseTtlMs: BigInt(leases.leaseMs()),
          heartbeatIntervalMs: BigInt(leases.intervalMs()),
        },
      })
      return
    }
    case 'accept':
      for (const run of message.value.runs) session.confirm(fromRef(run))
      return
    case 'reject': {
      const { run, reason, message: words } = message.value
      const held = heldRun(session, fromRef(run))
      if (reason === RejectReason.CROWDED && held !== undefined) {
        session.crowdedDomains.add(held.spec.domain_id)
        cluster.changed()
      }
      const why = words === '' ? (REJECTIONS[reason] ?? 'no reason given') : words
      writer.reject(session, fromRef(run), why).catch(failed)
      return
    }
    case 'stateUpdate': {
      const begun = message.value.running.map(fromRef)
      for (const run of begun) session.confirm(run)
      writer.running(session, begun).catch(failed)
      return
    }
    case 'result': {
      const ends = message.value.results.map((result) => {
        const run = fromRef(result.run)
        session.confirm(run)
        return { run, ending: output.checkStaged(session, run, fromResult(result)) }
      })
      // Staged parts are in the database before the result that names them.
      output
        .settled(session)
        .then(() => writer.ends(session, ends))
        .catch((error: unknown) => {
          failed(error)
          // Nothing was acknowledged: the worker registers anew and sends its spool again.
          cluster.remove(session)
        })
      return
    }
    case 'resultChunk': {
      const { run, digest, offset, data } = message.value
      output.stage(session, fromRef(run), { digest, offset: Number(offset), data })
      return
    }
    case 'logChunk': {
      const { run, stream, offset, data, truncated } = message.value
      output.log(session, fromRef(run), { stream, offset: Number(offset), data, truncated })
      return
    }
    case 'drainState':
      session.saysDraining = message.value.draining
      cluster.changed()
      return
    case 'cancelAck':
      // False: the worker holds no such run. Its deadline in the database ends it, should no result come.
      return
    case 'guestCall': {
      answerGuest(deps, session, message.value).catch(failed)
      return
    }
    case 'hello':
      throw new ServiceError('malformed', 'Hello comes once')
    case undefined:
      return
  }
}

type GuestOutcome = NonNullable<MessageInitShape<typeof GuestReplySchema>['outcome']>

/** Answered after the commit; a refusal is an answer as well. */
async function answerGuest({ guests }: SessionDeps, session: WorkerSession, call: GuestCall): Promise<void> {
  const identity = fromRef(call.run)
  const outcome = await guestOutcome(guests, heldRun(session, identity), call).catch((error: unknown): GuestOutcome => {
    if (!(error instanceof ServiceError)) throw error
    const kind = error.kind === 'conflict' ? 'stale' : error.kind
    return { case: 'error', value: { kind, message: error.message } }
  })
  session.tell({ case: 'guestReply', value: { run: toRef(identity), callId: call.callId, outcome } })
}

async function guestOutcome(
  guests: Guests,
  run: HeldRun | undefined,
  { callId, call }: GuestCall,
): Promise<GuestOutcome> {
  if (run === undefined) throw new ServiceError('conflict', 'the run was given to somebody else or has ended')
  switch (call.case) {
    case 'publish':
      await guests.publish(run, callId, call.value)
      return { case: 'published', value: {} }
    case 'read':
      return { case: 'recordsJson', value: Buffer.from(await guests.read(run, call.value)) }
    case undefined:
      throw new ServiceError('malformed', 'the call of a guest says nothing')
  }
}
