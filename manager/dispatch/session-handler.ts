/**
 * One session of one worker: the order of its messages and their effects. Hello is handled before any other message;
 * later messages go to the run writer in the order of their arrival.
 */
import { once } from 'node:events'
import { status } from '@grpc/grpc-js'
import { ServiceError, kindOf, presentError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { createTurns, inTurns } from '#core/turns.ts'
import { RejectReason, TASK_STATE, largeResponse, sessionRequests } from '#proto/index.ts'
import type {
  GuestCall,
  Heartbeat,
  Hello,
  Reject,
  RunResult,
  ServerDuplexStream,
  SessionRequest,
  SessionResponse,
} from '#proto/index.ts'
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { GuestReplySchema } from '#proto/index.ts'
import type { Guests } from '../channels/guests.ts'
import { findAssignedRun } from '../writer/end-runs.ts'
import { STOPPED_BEFORE_RUNNING, type AssignedRun, type RunEnding, type RunIdentity } from '../model/run.ts'
import type { RunOutput } from './run-output.ts'
import type { RunWriter } from '../writer/writer.ts'
import type { LeaseMonitor } from '../workers/leases.ts'
import type { Cluster } from '../placement/cluster.ts'
import { grpcFailure } from './failure.ts'
import { fromMeasurements, fromOfflineResult, fromRef, fromResult, toRef } from './translate.ts'
import { readClaims, welcomeParts } from './welcome.ts'
import { WorkerStream, type Delivery } from './worker-stream.ts'
import type { RecordOffline } from '../writer/offline-runs.ts'
import type { WorkerMeasurements } from '../placement/metrics.ts'
import { WorkerSession, type WorkerFacts } from '../placement/worker-session.ts'

export type SessionDeps = {
  cluster: Cluster
  writer: RunWriter
  leases: LeaseMonitor
  measurements: WorkerMeasurements
  output: RunOutput
  /** Records runs that the worker has started by itself; returns the ids of those that are recorded, now or earlier. */
  recordOffline: RecordOffline
  guests: Guests
  delivery: Delivery
  logger: Logger
  /** The worker of a Hello; throws `unauthenticated`, undefined if its epoch is void. */
  findWorker: (hello: Hello, call: SessionCall) => Promise<WorkerFacts | undefined>
}

type OfflineResult = ReturnType<typeof fromOfflineResult>

export type SessionCall = ServerDuplexStream<SessionRequest, SessionResponse>

/** Runs of one heartbeat that can be reported as waiting for their component. */
const MAX_PREPARING = 1_000
/** Results of runs in one message. */
const MAX_RESULTS = 1_000
/** Length of the message with which a worker rejects a run. */
const MAX_REASON_CHARS = 4096
/** Ids in a line of the log. */
const MAX_NAMED_WORKERS = 10
/** Messages of one worker whose runs of offline tasks wait to be recorded. */
const MAX_OFFLINE_MESSAGES = 4
/** Offline tasks of a worker that are noted as ready. */
const MAX_READY = 10_000
/** The text of a time. */
const MAX_VERSION_CHARS = 64
/** This is longer than any digest. */
const MAX_DIGEST_CHARS = 128
/** Unread messages of a worker; beyond it reading from the worker pauses. */
const MAX_UNREAD_MESSAGES = 1_000
/** Deadline of the first message. */
const HELLO_DEADLINE_MS = 10_000

/** Serves one stream until it ends; never throws. */
export async function serveSession(deps: SessionDeps, call: SessionCall): Promise<void> {
  let handler: SessionHandler | undefined
  try {
    const messages = sessionRequests(call)
    const first = await withDeadline(messages.next(), HELLO_DEADLINE_MS, 'the Hello of a worker')
    if (first.done === true) return
    if (first.value.message.case !== 'hello')
      throw new ServiceError('malformed', 'the first message of a session must be Hello')
    handler = await SessionHandler.open(deps, call, first.value.message.value)
    const turns = createTurns()
    for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
      if (!handler.session.isAlive) throw voidEpoch()
      await handler.receive(next.value)
      if (turns.isOver) await turns.next()
      if (call.writableLength > MAX_UNREAD_MESSAGES) await drained(call)
    }
    call.end()
  } catch (error) {
    // A broken stream gets no answer; any other failure is sent to the worker.
    if (call.cancelled) return
    const failure = grpcFailure(error)
    const worker = handler?.session.name
    if (failure.code === status.INTERNAL)
      deps.logger.error({ err: error, worker }, 'a worker session failed; closing it')
    else deps.logger.info({ worker, reason: failure.details }, 'a worker session was refused')
    call.emit('error', failure)
  } finally {
    handler?.leave()
  }
}

/** Resolves when the worker has read all messages, or has disconnected. */
async function drained(call: SessionCall): Promise<void> {
  const listening = new AbortController()
  const { signal } = listening
  await Promise.race([once(call, 'drain', { signal }), once(call, 'close', { signal })]).finally(() =>
    listening.abort(),
  )
}

function voidEpoch(): ServiceError {
  return new ServiceError('conflict', 'the session epoch is void: register again')
}

const REJECTIONS: Readonly<Record<RejectReason, string>> = {
  [RejectReason.UNSPECIFIED]: 'no reason given',
  [RejectReason.NO_SLOT]: 'no slot was free',
  [RejectReason.DRAINING]: 'the worker is draining',
  [RejectReason.NO_RUNTIME]: 'the worker does not have the runtime',
  [RejectReason.RUNNER_KILLED]: 'its runner was killed because of another run',
  [RejectReason.ISOLATION]: 'the isolation level is too weak for a task of a domain',
  [RejectReason.CROWDED]: 'components of the domain are waiting for transpilation, or a module is still being fetched',
}

/** The end of a run whose message was removed, which happens only to what was restored without it. */
const MESSAGE_GONE: RunEnding = {
  ...STOPPED_BEFORE_RUNNING,
  state: TASK_STATE.failed,
  reason: 'fetch_failed',
  error: 'the message of the run is no longer stored',
}

/** A session after its Hello. */
class SessionHandler {
  readonly session: WorkerSession
  readonly #deps: SessionDeps
  readonly #stream: WorkerStream
  #hasLeft = false
  /** Runs of offline tasks that wait to be recorded, and the messages that they came in. */
  readonly #offlineQueue = new Set<string>()
  #offlineMessages = 0
  #offlineWork: Promise<void> = Promise.resolve()

  private constructor(deps: SessionDeps, session: WorkerSession, stream: WorkerStream) {
    this.#deps = deps
    this.session = session
    this.#stream = stream
  }

  /** Handles the Hello. Throws `conflict` if the session's epoch is void. */
  static async open(deps: SessionDeps, call: SessionCall, hello: Hello): Promise<SessionHandler> {
    const { cluster, writer, leases, logger } = deps
    const facts = await deps.findWorker(hello, call)
    if (facts === undefined) throw voidEpoch()
    const before = cluster.find(facts.key)
    if (before !== undefined) cluster.remove(before)
    const stream: WorkerStream = new WorkerStream(facts.id, deps.delivery, {
      send: (message) => void call.write(message),
      undelivered: {
        gone: (run) =>
          void writer
            .recordEnds(session, [{ run, ending: MESSAGE_GONE }])
            .catch((error: unknown) =>
              logger.warn({ err: error, run: run.id }, 'failed to end a run without a message'),
            ),
        failed: (run, error) =>
          logger.warn({ err: error, run: run.id }, 'failed to read the message of a run; retrying'),
      },
    })
    const session: WorkerSession = new WorkerSession(facts, monotonicMs(), stream)
    const claims = await readClaims(hello)
    const settled = await writer.reconcileHello(session, claims, leases.leaseMs())
    if (settled === undefined) throw voidEpoch()
    call.write(await largeResponse(welcomeParts(claims, settled)))
    if (session.isDrainAsked) session.sendDrain(true)
    leases.beat(session)
    cluster.add(session)
    const namesakes = cluster
      .named(session.name)
      .values()
      .filter(({ id }) => id !== session.id)
    const others = [...namesakes.take(MAX_NAMED_WORKERS)].map(({ id }) => id)
    if (others.length > 0)
      logger.warn(
        { worker: session.name, ids: [session.id, ...others] },
        'several workers have the same name: give each its own with SKEIN_WORKER_NAME, or use their ids',
      )
    logger.info(
      { worker: session.name, id: session.id, slots: session.slots, runs: settled.keep.size },
      'worker joined',
    )
    void writer.claim().catch(() => undefined)
    return new SessionHandler(deps, session, stream)
  }

  /** The stream ended: no new assignments, but the runs stay until the lease expires or the worker reconnects. */
  leave(): void {
    const { session } = this
    this.#hasLeft = true
    session.isSuspect = true
    session.lastBeatMs = Math.min(session.lastBeatMs, monotonicMs())
    this.#deps.cluster.remove(session)
    void this.#deps.writer.recordSent(session)
    this.#deps.logger.info({ worker: session.name }, 'worker disconnected')
  }

  /**
   * Throws `malformed` for an invalid message. A worker can be malicious: long lists are read with pauses for other work.
   */
  async receive({ message }: SessionRequest): Promise<void> {
    const { session } = this
    const { writer, cluster, output } = this.#deps
    switch (message.case) {
      case 'heartbeat':
        await this.#beat(message.value)
        return
      case 'accept':
        await inTurns(message.value.runs, (run) => session.confirm(fromRef(run)))
        return
      case 'reject':
        this.#reject(message.value)
        return
      case 'stateUpdate': {
        const begun = new Map<string, RunIdentity>()
        await inTurns(message.value.running, (ref) => {
          const run = fromRef(ref)
          session.confirm(run)
          if (findAssignedRun(session, run) !== undefined) begun.set(run.id, run)
        })
        if (begun.size > 0) writer.markRunning(session, [...begun.values()]).catch(this.#unwritten)
        return
      }
      case 'result':
        await this.#recordResults(message.value.results)
        return
      case 'resultChunk': {
        const { run, digest, offset, data } = message.value
        await output.stage(session, fromRef(run), { digest, offset: Number(offset), data })
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
        if (!session.isDraining) writer.claim().catch(this.#unwritten)
        return
      case 'cancelAck':
        // False: the worker does not hold this run. Its deadline in the database ends the run if no result arrives.
        return
      case 'offlineReady':
        await inTurns(message.value.tasks, ({ taskId, version }) => {
          const { offline } = session
          if (offline === undefined || offline.ready.size >= MAX_READY) return
          if (isId(taskId) && version.length <= MAX_VERSION_CHARS) offline.ready.set(taskId, version)
        })
        return
      case 'guestCall':
        this.#answerGuest(message.value).catch(this.#unwritten)
        return
      case 'hello':
        throw new ServiceError('malformed', 'Hello must be sent once')
      case undefined:
        return
    }
  }

  readonly #unwritten = (error: unknown): void => {
    this.#deps.logger.warn({ err: error, worker: this.session.name }, 'failed to store a report of a worker')
  }

  async #beat(beat: Heartbeat): Promise<void> {
    const { session } = this
    const { cluster, leases, writer } = this.#deps
    session.freeSlots = beat.freeSlots
    if (beat.measurements !== undefined) this.#deps.measurements.record(session, fromMeasurements(beat.measurements))
    await inTurns(beat.cachedDigestsAdded, (digest) => {
      if (digest.length <= MAX_DIGEST_CHARS) session.rememberDigest(digest)
    })
    await inTurns(beat.cachedDigestsRemoved, (digest) => session.cachedDigests.delete(digest))
    session.preparing = new Map(
      beat.preparing.slice(0, MAX_PREPARING).flatMap(({ run, position }) => {
        const held = findAssignedRun(session, fromRef(run))
        return held === undefined ? [] : [[held.id, position] as const]
      }),
    )
    if (session.crowdedDomains.size > 0) {
      session.crowdedDomains.clear()
      cluster.changed()
      writer.claim().catch(this.#unwritten)
    }
    leases.beat(session)
    session.repeatUnconfirmed()
    cluster.touch(session)
    cluster.flush()
    this.#stream.tell({
      case: 'leaseRenewed',
      value: {
        sequence: beat.sequence,
        leaseTtlMs: BigInt(leases.leaseMs()),
        heartbeatIntervalMs: BigInt(leases.intervalMs()),
      },
    })
  }

  #reject({ run: ref, reason, message: words }: Reject): void {
    const { session } = this
    const run = fromRef(ref)
    const held = findAssignedRun(session, run)
    if (held === undefined) return
    if (reason === RejectReason.CROWDED) {
      session.crowdedDomains.add(held.spec.domain_id)
      this.#deps.cluster.changed()
    }
    const why = words === '' ? (REJECTIONS[reason] ?? 'no reason given') : words.slice(0, MAX_REASON_CHARS)
    this.#deps.writer.reject(session, run, why.replaceAll('\0', '')).catch(this.#unwritten)
  }

  async #recordResults(results: readonly RunResult[]): Promise<void> {
    if (results.length > MAX_RESULTS)
      throw new ServiceError('too_large', `a message must have at most ${MAX_RESULTS} results`)
    const { session } = this
    const { cluster, output, writer } = this.#deps
    const ends: { run: RunIdentity; ending: RunEnding }[] = []
    const repeated: AssignedRun[] = []
    const staged: Promise<unknown>[] = []
    const offline: OfflineResult[] = []
    await inTurns(results, (result) => {
      if (result.offline !== undefined) {
        offline.push(fromOfflineResult(result))
        return
      }
      const run = fromRef(result.run)
      session.confirm(run)
      const ending = fromResult(result)
      const written = output.staged(session, run, ending)
      if (written !== undefined) staged.push(written)
      const held = ending.isOutputInResult === true ? findAssignedRun(session, run) : undefined
      if (held !== undefined) repeated.push(held)
      ends.push({ run, ending })
    })
    if (offline.length > 0) await this.#queueOffline(offline)
    if (ends.length === 0) return
    // Staged parts are in the database before the result that refers to them. Results without parts do not wait for those of others.
    const recorded = Promise.all(staged).then((failures) => {
      for (const failure of failures) if (failure !== undefined) throw failure as Error
      return writer.recordEnds(session, ends)
    })
    const settled = repeated.length === 0 ? recorded : recorded.then(() => output.dropRepeated(repeated))
    settled.catch((error: unknown) => {
      this.#unwritten(error)
      // Without an acknowledgement the worker registers again and resends its spool.
      cluster.remove(session)
    })
  }

  /**
   * One transaction of a worker at a time: after a day without a network it sends thousands of results, and others need connections of the
   * database too. What is repeated meanwhile is in the queue already. Reading from the worker pauses when the queue is full.
   */
  async #queueOffline(ended: readonly OfflineResult[]): Promise<void> {
    const fresh = ended.filter(({ run }) => !this.#offlineQueue.has(run.id))
    if (fresh.length === 0) return
    for (const { run } of fresh) this.#offlineQueue.add(run.id)
    this.#offlineMessages += 1
    this.#offlineWork = this.#offlineWork.then(async () => {
      await this.#recordOffline(fresh)
      this.#offlineMessages -= 1
      for (const { run } of fresh) this.#offlineQueue.delete(run.id)
    })
    if (this.#offlineMessages > MAX_OFFLINE_MESSAGES) await this.#offlineWork
  }

  async #recordOffline(ended: readonly OfflineResult[]): Promise<void> {
    const { session } = this
    try {
      const recorded = await this.#deps.recordOffline(session, ended)
      for (const { run } of ended) session.acknowledge({ run, recorded: recorded.has(run.id) })
      session.flush()
    } catch (error) {
      // The worker sends them again at a later heartbeat.
      this.#unwritten(error)
    }
  }

  /**
   * Answers after the commit. A failure is also an answer: without one the guest would wait until its run ends. After the session has ended, the
   * worker sends the call again on its next one.
   */
  async #answerGuest(call: GuestCall): Promise<void> {
    const identity = fromRef(call.run)
    const outcome = await this.#guestOutcome(identity, call).catch((error: unknown): GuestOutcome => {
      if (kindOf(error) === 'internal')
        this.#deps.logger.error({ err: error, worker: this.session.name }, 'failed to answer a guest')
      const { error: kind, message } = presentError(error)
      return { case: 'error', value: { kind: kind === 'conflict' ? 'stale' : kind, message } }
    })
    if (!this.#hasLeft)
      this.#stream.tell({ case: 'guestReply', value: { run: toRef(identity), callId: call.callId, outcome } })
  }

  async #guestOutcome(identity: RunIdentity, { callId, call }: GuestCall): Promise<GuestOutcome> {
    const { guests } = this.#deps
    const find = () => findAssignedRun(this.session, identity)
    const isAwaited = () => !this.#hasLeft && find() !== undefined
    const run = find()
    if (run === undefined) throw new ServiceError('conflict', 'the run was assigned to another worker or has ended')
    switch (call.case) {
      case 'publish':
        await guests.publish(run, callId, call.value, isAwaited)
        return { case: 'published', value: {} }
      case 'read':
        return { case: 'recordsJson', value: Buffer.from(await guests.read(run, call.value, isAwaited)) }
      case 'stateGet':
        return { case: 'stateValues', value: { values: await guests.stateValues(run, call.value, isAwaited) } }
      case 'stateKeys':
        return { case: 'stateNames', value: { keys: await guests.stateKeys(run, call.value, isAwaited) } }
      case undefined:
        throw new ServiceError('malformed', 'the guest call is empty')
    }
  }
}

type GuestOutcome = NonNullable<MessageInitShape<typeof GuestReplySchema>['outcome']>
