/**
 * A worker of a fleet: the membership, the lease, the runs, the spool and the journal of a real worker. Only the runner processes, the modules and
 * the certificates are replaced, so that a thousand of them fit into a process.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { readConfig } from '#core/config/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { dialWithoutTls } from '#proto/index.ts'
import { WORKER_SETTINGS } from '../../worker/identity/config.ts'
import { GuestHttp } from '../../worker/http/index.ts'
import { Managers } from '../../worker/membership/managers.ts'
import { Membership } from '../../worker/membership/membership.ts'
import type { MembershipDeps } from '../../worker/membership/membership.ts'
import { AssignmentJournal } from '../../worker/runs/assignment-journal.ts'
import { Runs } from '../../worker/runs/runs.ts'
import type { RunsDeps } from '../../worker/runs/runs.ts'
import { Lease } from '../../worker/session/lease.ts'
import { Spool } from '../../worker/spool/index.ts'
import { DEFAULT_TIMING } from '../../worker/worker.ts'

const SPOOL_BYTES = 1024 * 1024
/** The times of a real worker, except that the lease is checked less often: a thousand timers share a process here. */
const TIMING = { ...DEFAULT_TIMING, leaseCheckMs: 1_000 }

const logger = createLogger({ name: 'fleet', level: 'fatal' })

/** How often the guest of a run was called, and how often such a call came to its end. */
export type Calls = { begun: number; ended: number }

/** Runs wait at it until it opens. */
export class Gate {
  readonly #open = Promise.withResolvers<void>()
  readonly calls = new Map<string, Calls>()

  open(): void {
    this.#open.resolve()
  }

  /** False: the call was aborted before that. */
  async pass(runId: string, signal: AbortSignal): Promise<boolean> {
    const calls = this.calls.getOrInsertComputed(runId, () => ({ begun: 0, ended: 0 }))
    calls.begun += 1
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
    await Promise.race([this.#open.promise, aborted])
    if (signal.aborted) return false
    calls.ended += 1
    return true
  }
}

export type SimulatedWorker = { membership: Membership; joined: Promise<string> }

export type SimulatedOptions = { address: string; token: string; folder: string; name: string; gate: Gate }

/** Begins to join. */
export async function startSimulatedWorker(options: SimulatedOptions): Promise<SimulatedWorker> {
  const { address, token, folder, name, gate } = options
  await mkdir(folder, { recursive: true })
  const config = readConfig(WORKER_SETTINGS, { SKEIN_WORKER_NAME: name, SKEIN_WORKER_LABELS: 'bench=fleet' })
  const modules = {
    takeChanges: () => ({ added: [], removed: [] }),
    digests: () => [],
    get: async () => ({ path: '', release: () => undefined }),
  } as unknown as RunsDeps['modules']
  const pool = {
    async run({ call, onStarted }: { call: { env: { RUN_ID: string } }; onStarted: () => void }, signal: AbortSignal) {
      const beganMs = monotonicMs()
      onStarted()
      const hasEnded = await gate.pass(call.env.RUN_ID, signal)
      const durationMs = monotonicMs() - beganMs
      return hasEnded ? { state: 'completed', results: [42], durationMs } : { state: 'stopped', durationMs }
    },
  } as unknown as RunsDeps['pool']
  const components = {
    prepare: async () => undefined,
    positionOf: () => undefined,
  } as unknown as RunsDeps['components']
  const runs = new Runs({
    pool,
    modules,
    components,
    spool: await Spool.open(join(folder, 'spool'), { maxBytes: SPOOL_BYTES }),
    journal: await AssignmentJournal.open(join(folder, 'assignments'), logger),
    http: new GuestHttp({ isEnabled: false, privateHosts: [] }),
    slots: 1,
    backlog: 0,
    isPlatformOnly: false,
    isMemoryLimited: false,
    logger,
  })
  const membership = new Membership({
    config,
    logger,
    version: 'bench',
    timing: TIMING,
    managers: new Managers([address]),
    credentials: credentialsOf(token),
    certificate: { shown: undefined } as unknown as MembershipDeps['certificate'],
    onNewCertificate: () => undefined,
    onRegistered: () => undefined,
    modulePeerAddress: '',
    identityPath: join(folder, 'identity'),
    member: { identity: undefined },
    slots: 1,
    backlog: 0,
    runMemoryBytes: undefined,
    runs,
    offline: {
      count: 0,
      connect: () => undefined,
      disconnect: () => undefined,
      replace: () => undefined,
    },
    modules,
    lease: new Lease({ now: monotonicMs, wallNow: Date.now }),
    // What an idle worker says of itself.
    measure: () => ({ residentBytes: 60_000_000n, runners: 1 }),
    isolation: 'namespace',
    isPlatformOnly: false,
  })
  return { membership, joined: membership.join(undefined) }
}

function credentialsOf(token: string): MembershipDeps['credentials'] {
  const dialling = dialWithoutTls()
  // A pool of its own, so that each worker has its own connection.
  const options = { ...dialling.options, 'grpc.use_local_subchannel_pool': 1 }
  return {
    joinSecret: token.slice(token.lastIndexOf('.') + 1),
    fingerprint: undefined,
    isTls: () => false,
    channel: async () => ({ ...dialling, options }),
  }
}
