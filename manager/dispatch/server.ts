/** The gRPC listener of the manager: workers connect, register and hold their session. */
import { create } from '@bufbuild/protobuf'
import { BoundedCache } from '#core/bounded-cache.ts'
import { isId } from '#core/ids.ts'
import { Server, ServerCredentials, experimental } from '@grpc/grpc-js'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { portError } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import {
  RegisterResponseSchema,
  RenewResponseSchema,
  WorkerService,
  fingerprintOf,
  serviceDefinition,
} from '#proto/index.ts'
import type {
  Hello,
  RegisterRequest,
  RegisterResponse,
  RenewRequest,
  RenewResponse,
  ServiceHandlers,
} from '#proto/index.ts'
import type { GrpcTls } from '../tls/grpc-tls.ts'
import type { TicketIssuer } from '../modules/tickets.ts'
import {
  MAX_CHUNK_BYTES,
  MAX_INLINE_RESULT_BYTES,
  MAX_SESSION_MESSAGE_BYTES,
  MAX_RESULT_BYTES,
} from '../model/limits.ts'
import { authenticateWorker, issueCertificate, requireCertificate } from '../workers/certificates.ts'
import type { LeaseMonitor } from '../workers/leases.ts'
import { registerWorker } from '../workers/registration.ts'
import { digestSecret } from '../model/worker-secret.ts'
import { grpcFailure } from './failure.ts'
import { serveSession, type SessionDeps } from './session-handler.ts'
import type { WorkerFacts } from '../placement/worker-session.ts'

export type DispatchDeps = Omit<SessionDeps, 'findWorker'> & {
  database: Database
  leases: LeaseMonitor
  tickets: TicketIssuer
  logger: Logger
  newId: () => string
  managerId: string
  host: string
  port: number
  tls: GrpcTls | undefined
}

type AsyncHandler = (...call: Parameters<ServiceHandlers<typeof WorkerService>['register']>) => Promise<void>

type RenewHandler = (...call: Parameters<ServiceHandlers<typeof WorkerService>['renew']>) => Promise<void>

export type DispatchServer = { address: string; port: number; stop(): Promise<void> }

/** Pings detect a dead connection of a worker, because TCP alone can take minutes. */
const KEEPALIVE_MS = 10_000
const KEEPALIVE_ANSWER_MS = 5_000
/** Sessions have this long to end on a shutdown. */
const GOAWAY_MS = 1_000
/** Facts of Register that the session starts with; losing them costs a fetch at most. */
type AtRegistration = Pick<WorkerFacts, 'cachedDigests' | 'peerAddress'>
/** Workers between their Register and their Hello. */
const MAX_REGISTERED = 10_000

export async function startDispatch(deps: DispatchDeps): Promise<DispatchServer> {
  const { database, cluster, logger } = deps
  const server = new Server({
    'grpc.max_receive_message_length': MAX_SESSION_MESSAGE_BYTES,
    'grpc.keepalive_time_ms': KEEPALIVE_MS,
    'grpc.keepalive_timeout_ms': KEEPALIVE_ANSWER_MS,
    'grpc.keepalive_permit_without_calls': 1,
  })
  const registered = new BoundedCache<string, AtRegistration>({ maxEntries: MAX_REGISTERED })
  const sessionDeps: SessionDeps = {
    ...deps,
    findWorker: async (hello, call) => {
      const facts = await findWorker(database, hello, registered.get(hello.workerId))
      const shown = shownBy(deps, call)
      if (facts !== undefined && shown !== 'plain') await requireCertificate(database.db, facts.key, shown)
      return facts
    },
  }

  const answerRegister: AsyncHandler = async (call, callback) => {
    let response: RegisterResponse
    try {
      response = await register(deps, call.request, shownBy(deps, call))
    } catch (error) {
      const failure = grpcFailure(error)
      logger.info(
        { worker: call.request.name, peer: call.getPeer(), reason: failure.details },
        'failed to register a worker',
      )
      callback(failure)
      return
    }
    const { cachedDigests, modulePeerAddress: peerAddress } = call.request
    registered.set(response.workerId, { cachedDigests, peerAddress })
    callback(null, response)
  }
  const answerRenew: RenewHandler = async (call, callback) => {
    try {
      callback(null, await renew(deps, call.request, shownBy(deps, call)))
    } catch (error) {
      callback(grpcFailure(error))
    }
  }
  const workerHandlers: ServiceHandlers<typeof WorkerService> = {
    register: (call, callback) => void answerRegister(call, callback),
    renew: (call, callback) => void answerRenew(call, callback),
    session: (call) => void serveSession(sessionDeps, call),
  }
  server.addService(serviceDefinition(WorkerService), workerHandlers)

  const credentials = deps.tls === undefined ? ServerCredentials.createInsecure() : tlsCredentials(deps.tls)
  const port = await bind(server, deps, credentials)
  return {
    port,
    address: `${deps.host}:${port}`,
    async stop() {
      for (const session of cluster.sessions) session.goAway('the manager is shutting down')
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          server.forceShutdown()
          resolve()
        }, GOAWAY_MS)
        server.tryShutdown(() => {
          clearTimeout(timer)
          resolve()
        })
      })
    },
  }
}

function bind(
  server: Server,
  { host, port }: { host: string; port: number },
  credentials: ServerCredentials,
): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(`${host.includes(':') ? `[${host}]` : host}:${port}`, credentials, (error, bound) => {
      if (error === null) return resolve(bound)
      const cause = /EADDRINUSE/.test(error.message) ? Object.assign(error, { code: 'EADDRINUSE' }) : error
      reject(portError(cause, { port, setting: 'SKEIN_MANAGER_GRPC_PORT' }, host))
    })
  })
}

/** Requests a certificate from every caller and accepts those without one: a worker that joins has none yet. */
function tlsCredentials({ cert, key, authority }: GrpcTls): ServerCredentials {
  const none = () => undefined
  const provider: experimental.CertificateProvider = {
    // Called asynchronously: grpc-js ignores the first event of a listener until it has added its own watcher, and would
    // drop every connection.
    addCaCertificateListener: (listener) =>
      queueMicrotask(() => listener({ caCertificate: Buffer.from(authority.pem) })),
    addIdentityCertificateListener: (listener) =>
      queueMicrotask(() => listener({ certificate: cert, privateKey: key })),
    removeCaCertificateListener: none,
    removeIdentityCertificateListener: none,
  }
  return experimental.createCertificateProviderServerCredentials(provider, provider, false)
}

type ConnectedCall = { getAuthContext(): { sslPeerCertificate?: { fingerprint256: string } } | null }

/** The certificate of a call's connection; 'plain': a connection without TLS. */
function shownBy({ tls }: DispatchDeps, call: object): string | undefined {
  if (tls === undefined) return 'plain'
  const certificate = (call as ConnectedCall).getAuthContext()?.sslPeerCertificate
  return certificate === undefined ? undefined : fingerprintOf(certificate)
}

async function renew(
  { database, tls }: DispatchDeps,
  { workerId, workerSecret, certificateRequest }: RenewRequest,
  shown: string | undefined,
): Promise<RenewResponse> {
  if (tls === undefined) throw new ServiceError('invalid_state', 'certificates require a connection over TLS')
  const worker = await authenticateWorker(database, { id: workerId, secret: workerSecret }, shown)
  const certificate = await issueCertificate(database, tls.authority, worker, certificateRequest)
  return create(RenewResponseSchema, { certificate })
}

async function register(
  deps: DispatchDeps,
  request: RegisterRequest,
  shown: string | undefined,
): Promise<RegisterResponse> {
  const { database, newId, managerId, leases, tickets, tls } = deps
  const registered = await registerWorker(
    { database, newId, managerId, leaseMs: () => leases.leaseMs(), shown },
    request,
  )
  const { certificateRequest } = request
  const certificate =
    tls === undefined || certificateRequest.byteLength === 0
      ? undefined
      : await issueCertificate(database, tls.authority, registered, certificateRequest)
  // An older session of this worker has a void epoch.
  const before = deps.cluster.find(registered.key)
  if (before !== undefined) deps.cluster.remove(before)
  return create(RegisterResponseSchema, {
    workerId: registered.id,
    workerSecret: registered.secret ?? '',
    sessionEpoch: BigInt(registered.epoch),
    heartbeatIntervalMs: BigInt(deps.leases.intervalMs()),
    leaseTtlMs: BigInt(deps.leases.leaseMs()),
    ...(certificate === undefined ? {} : { certificate }),
    ticketKey: tickets.publicKey,
    authorityPem: tls?.authority.pem ?? '',
    limits: {
      maxInlineResultBytes: BigInt(MAX_INLINE_RESULT_BYTES),
      maxStagedResultBytes: BigInt(MAX_RESULT_BYTES),
      maxChunkBytes: BigInt(MAX_CHUNK_BYTES),
      maxMessageBytes: BigInt(MAX_SESSION_MESSAGE_BYTES),
      takesOutputInResult: true,
      keepsState: true,
      takesOfflineRuns: true,
    },
  })
}

type WorkerRow = {
  key: number
  id: string
  name: string
  domain_id: string | null
  labels: Record<string, string>
  runtimes: string[]
  platform_only: boolean
  memory_bytes: number
  slots: number
  backlog: number
  draining: boolean
  session_epoch: number
  secret_matches: boolean
}

/** Throws `unauthenticated` for a wrong secret; undefined if the epoch is void. */
async function findWorker(
  database: Database,
  hello: Hello,
  { cachedDigests, peerAddress }: AtRegistration = { cachedDigests: [], peerAddress: '' },
): Promise<WorkerFacts | undefined> {
  const id = isId(hello.workerId) ? hello.workerId : null
  const { rows } = await sql<WorkerRow>`
    SELECT key, id, name, domain_id, labels, runtimes, platform_only, memory_bytes, slots, backlog, draining, session_epoch,
      secret_hash = ${digestSecret(hello.workerSecret)} AS secret_matches
    FROM workers WHERE id = ${id} AND revoked_at IS NULL`.execute(database.db)
  const row = rows[0]
  if (row === undefined || !row.secret_matches)
    throw new ServiceError('unauthenticated', 'unknown worker id or wrong worker secret')
  if (BigInt(row.session_epoch) !== hello.sessionEpoch) return undefined
  return {
    key: row.key,
    id: row.id,
    name: row.name,
    domainId: row.domain_id,
    labels: row.labels,
    runtimes: row.runtimes,
    isPlatformOnly: row.platform_only,
    memoryBytes: row.memory_bytes,
    slots: row.slots,
    backlog: row.backlog,
    runMemoryBytes: hello.runMemoryBytes === 0n ? undefined : Number(hello.runMemoryBytes),
    isDraining: row.draining,
    epoch: row.session_epoch,
    cachedDigests,
    peerAddress,
    offlineTasks: hello.takesOfflineTasks ? hello.offlineTasks : undefined,
  }
}
