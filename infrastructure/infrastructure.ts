/**
 * The resources of a process with a database, started in this order: database server, safety check, schema, secret key, bus, row in
 * `nodes`. The lifecycle stops them in reverse.
 */
import { resolve } from 'node:path'
import { readBuildInfo } from '#core/build-info.ts'
import type { BuildInfo } from '#core/build-info.ts'
import { connectBus } from '#core/bus/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { ensurePositionEpoch } from '#core/changelog/index.ts'
import {
  MIGRATIONS_FOLDER,
  checkServerVersion,
  createDatabase,
  createReplica,
  migrate,
  readMigrations,
} from '#core/database/index.ts'
import type { Database, DatabaseAddress, DatabaseOptions, SnapshotSource } from '#core/database/index.ts'
import {
  checkServerSafety,
  createDiskGuard,
  findReplicationFault,
  requireReplication,
  superviseEmbeddedPostgres,
} from '#postgres/embedded/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createKeyring, loadMasterKey, parsePreviousKey, requireSameKey, rotateSecretKey } from '#core/keyring/index.ts'
import type { Keyring, SealedColumn } from '#core/keyring/index.ts'
import { errorMessageOf } from '#core/program/index.ts'
import { connectSharedLimits } from '#core/limits/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { LivingNode } from '#core/nodes/index.ts'
import type { Machine } from './processes/index.ts'
import { startReadiness } from '#core/readiness/index.ts'
import type { Readiness } from '#core/readiness/index.ts'
import { createStreams } from '#core/streams/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { Secret } from '#core/config/index.ts'
import { startCommitProbe } from './commit-probe.ts'
import type { CommitProbe } from './commit-probe.ts'
import { diagnoseDatabase } from './diagnosis.ts'
import type { DatabaseDiagnosis } from './diagnosis.ts'
import type { InfrastructureConfig } from './settings.ts'

export type Infrastructure = {
  readonly config: InfrastructureConfig
  readonly logger: Logger
  readonly build: BuildInfo
  /** Absolute path of the data folder. */
  readonly dataDir: string
  readonly database: Database
  /** The source of reads of messages: a standby with everything that was acknowledged before the read, or the primary. */
  readonly history: SnapshotSource
  readonly keyring: Keyring
  readonly bus: Bus
  /** Defined when nodes share a Redis, or processes a machine. */
  readonly limits: SharedLimits | undefined
  /** The checks of the dependencies of this process. Each room adds the checks of its own. */
  readonly readiness: Readiness
  /** Budget and limits shared by all streams of this process. */
  readonly streams: Streams
  /** The row of this process in `nodes`. */
  readonly node: LivingNode
  /** The embedded server, for other processes of this machine. */
  readonly embedded: EmbeddedServer | undefined
  /** False while the disk of the embedded database is nearly full; ingest is rejected until there is room. */
  hasRoom(): boolean
  /** False while a COMMIT waits for synchronous standbys that do not answer; changes and messages are rejected until one answers. */
  canCommit(): boolean
  /** Returns the facts about the database that an operator must know. */
  diagnose(): Promise<DatabaseDiagnosis>
  /** The description of the database in the start banner. */
  readonly databaseNote: string
  readonly notices: readonly string[]
}

/** An embedded server that runs. Its address contains the password. */
export type EmbeddedServer = {
  readonly address: DatabaseAddress
  /** Its data folder, whose disk is watched. */
  readonly folder: string
  readonly notices: readonly string[]
}

export type InfrastructureOptions = {
  config: InfrastructureConfig
  logger: Logger
  /** The kind of process, for `nodes`. */
  kind: string
  maxConnections: number
  /** Called with a description of each step of the start. */
  onStep?: (step: string) => void
  /** The embedded server has a process: other work may begin while it becomes ready. */
  onServerSpawn?: () => void
  /** Columns to reseal when the secret key changes. */
  sealed?: readonly SealedColumn[]
  /** The server that the supervisor of this process runs; without it, this process runs its own. */
  embedded?: EmbeddedServer | undefined
  /** The hints and limits that this process shares with the others of its machine. Undefined: it is the only one. */
  machine?: Machine | undefined
  /** Overrides the database; tests use many databases on one server. */
  address?: DatabaseAddress
}

/** A replica that does not accept a connection in this time does not serve the read; the primary does. */
const REPLICA_CONNECT_DEADLINE_MS = 1000
/** A start waits this long for a synchronous standby. A program that ends leaves a waiting COMMIT in the server, so it ends rarely. */
const STANDBY_DEADLINE_MS = 600_000

export async function startInfrastructure(life: Lifecycle, options: InfrastructureOptions): Promise<Infrastructure> {
  const { config, logger, kind, onStep = () => undefined } = options
  const dataDir = resolve(config.dataDir)
  const build = readBuildInfo()
  // This is checked before anything is started: an external database without a secret key is rejected at once. With the embedded one, the
  // key is created in the data folder, whose mode and owner the server sets first.
  const masterKey =
    config.secretKey === undefined && config.databaseUrl === undefined
      ? undefined
      : await loadMasterKey({ configured: config.secretKey, dataDir, isEmbedded: config.databaseUrl === undefined })
  requireExternal(config)
  const readiness = await startReadiness(life, logger)
  const server = await findServer(life, options, dataDir)

  let isMigrated = false
  const beginEpoch: DatabaseOptions['onConnect'] = async (client) => {
    if (!isMigrated) return
    if (config.databaseHa) await requireReplication(client)
    // With synchronous standbys, the epoch's own COMMIT returns when a standby has everything that this server recovered.
    if (await ensurePositionEpoch(client))
      logger.debug('the database server was restarted; starting a new epoch of positions')
  }
  let probe: CommitProbe | undefined
  const canCommit = () => probe?.canCommit() !== false
  const database = await life.start('database connections', async () => {
    const value = createDatabase({
      address: server.address,
      maxConnections: options.maxConnections,
      applicationName: `skein ${kind}`,
      logger,
      canCommit,
      onConnect: beginEpoch,
    })
    return { value, stop: () => value.close() }
  })
  const migrations = await readMigrations(MIGRATIONS_FOLDER)
  const setup = await database.dedicated('skein setup').catch((error: unknown) => {
    throw unreachable(error, config)
  })
  try {
    await checkServerVersion(setup, logger)
    await checkServerSafety(setup, config.databaseUnsafe)
    const fault = config.databaseHa ? await findReplicationFault(setup) : undefined
    if (fault !== undefined) throw new ServiceError('invalid_state', fault)
    onStep('checking the schema')
    await migrate(setup, migrations, logger)
    isMigrated = true
    await beginEpoch(setup)
  } finally {
    await setup.end()
  }
  const keyring = createKeyring(
    masterKey ?? (await loadMasterKey({ configured: config.secretKey, dataDir, isEmbedded: true })),
  )
  if (config.secretKeyPrevious !== undefined) {
    onStep('checking the secret key')
    const previous = createKeyring(parsePreviousKey(config.secretKeyPrevious))
    await rotateSecretKey({ database, current: keyring, previous, columns: options.sealed ?? [], logger })
  }
  await requireSameKey(database.db, keyring.fingerprint)
  const history = await startReplica(life, { database, config, logger, readiness, options })
  if (config.databaseHa) {
    probe = await life.start('commit probe', () => {
      const value = startCommitProbe({ database, logger })
      return Promise.resolve({ value, stop: () => value.stop() })
    })
    await probe.committed(STANDBY_DEADLINE_MS, life.signal)
  }
  readiness.add({
    name: 'commit',
    isRequired: true,
    read: () => (canCommit() ? undefined : 'the synchronous standbys do not answer: nothing can be stored'),
  })
  const bus = await life.start('hints', async () => {
    const value = await connectBus(config.redisUrl?.reveal(), logger, options.machine?.hints)
    return { value, stop: () => value.close() }
  })
  if (config.redisUrl !== undefined)
    readiness.add({
      name: 'redis',
      isRequired: false,
      read: () =>
        bus.isConnected ? undefined : 'Redis is unavailable: changes of other processes are seen a little later',
    })
  readiness.add({
    name: 'disk',
    isRequired: false,
    read: () => (server.hasRoom() ? undefined : 'the disk of the database is nearly full: messages are refused'),
  })
  const limits = await life.start('shared limits', async () => {
    const value = await connectSharedLimits(config.redisUrl?.reveal(), logger, options.machine?.limits)
    return { value, stop: () => Promise.resolve(value?.close()) }
  })
  const node = await life.start('sign of life', async () => {
    const value = await LivingNode.start({
      database,
      logger,
      kind,
      version: build.version,
      migration: migrations.length,
    })
    return { value, stop: () => value.stop() }
  })
  return {
    config,
    logger,
    build,
    dataDir,
    database,
    history,
    keyring,
    bus,
    limits,
    readiness,
    streams: createStreams(config),
    node,
    embedded: server.embedded,
    hasRoom: server.hasRoom,
    canCommit,
    diagnose: () => diagnoseDatabase({ database, knownMigrations: migrations.length, dataDir: server.dataDir }),
    databaseNote: server.note,
    notices: server.notices,
  }
}

/** Throws `malformed` for settings of an external database without one. */
function requireExternal({ databaseUrl, databaseHa, databaseReplicaUrl }: InfrastructureConfig): void {
  if (databaseUrl !== undefined) return
  if (databaseHa)
    throw new ServiceError(
      'malformed',
      'SKEIN_DATABASE_HA requires SKEIN_DATABASE_URL: the embedded database has no standby',
    )
  if (databaseReplicaUrl !== undefined)
    throw new ServiceError('malformed', 'SKEIN_DATABASE_REPLICA_URL requires SKEIN_DATABASE_URL')
}

/** Throws `malformed`, without the value: it contains a password. */
function addressOf(name: string, value: Secret): string {
  const url = value.reveal()
  if (URL.canParse(url) && /^postgres(ql)?:$/.test(new URL(url).protocol)) return url
  throw new ServiceError('malformed', `${name} must be an address such as postgres://user:password@host:5432/skein`)
}

type ReplicaDeps = {
  database: Database
  config: InfrastructureConfig
  logger: Logger
  readiness: Readiness
  options: InfrastructureOptions
}

/** The primary, where no replica is configured. */
async function startReplica(life: Lifecycle, deps: ReplicaDeps): Promise<SnapshotSource> {
  const { database, config, logger, readiness, options } = deps
  if (config.databaseReplicaUrl === undefined) return database
  const standby = createDatabase({
    address: { url: addressOf('SKEIN_DATABASE_REPLICA_URL', config.databaseReplicaUrl) },
    maxConnections: options.maxConnections,
    applicationName: `skein ${options.kind} replica`,
    logger,
    connectDeadlineMs: REPLICA_CONNECT_DEADLINE_MS,
  })
  const replica = await life.start('replica', () => {
    const value = createReplica({ primary: database, standby, logger })
    return Promise.resolve({ value, stop: () => value.close() })
  })
  readiness.add({ name: 'replica', isRequired: false, read: () => replica.reason })
  return replica
}

type Server = {
  address: DatabaseAddress
  note: string
  notices: readonly string[]
  hasRoom: () => boolean
  embedded: EmbeddedServer | undefined
  /** The data folder of the embedded server. */
  dataDir: string | undefined
}

async function findServer(
  life: Lifecycle,
  { config, logger, address, embedded, onStep = () => undefined, onServerSpawn }: InfrastructureOptions,
  dataDir: string,
): Promise<Server> {
  if (address !== undefined) {
    const none = { notices: [], hasRoom: () => true, embedded: undefined, dataDir: undefined }
    return { address, note: 'given', ...none }
  }
  if (config.databaseUrl !== undefined) {
    onStep('connecting to the database')
    const url = addressOf('SKEIN_DATABASE_URL', config.databaseUrl)
    return {
      address: { url },
      note: `PostgreSQL at ${new URL(url).host}`,
      notices: [],
      hasRoom: () => true,
      embedded: undefined,
      dataDir: undefined,
    }
  }
  const running = embedded ?? (await runServer(life, { dataDir, logger, onStep, onServerSpawn }))
  const guard = await life.start('disk guard', async () => {
    const value = createDiskGuard({ path: running.folder })
    await value.refresh()
    return { value, stop: () => Promise.resolve(value.close()) }
  })
  return {
    address: running.address,
    note: `embedded PostgreSQL in ${running.folder}`,
    notices: running.notices,
    hasRoom: () => guard.hasRoom(),
    embedded: running,
    dataDir,
  }
}

async function runServer(
  life: Lifecycle,
  {
    dataDir,
    logger,
    onStep,
    onServerSpawn,
  }: {
    dataDir: string
    logger: Logger
    onStep: (step: string) => void
    onServerSpawn: (() => void) | undefined
  },
): Promise<EmbeddedServer> {
  onStep('starting PostgreSQL')
  const server = await life.start('embedded PostgreSQL', async () => {
    const value = await superviseEmbeddedPostgres({
      dataDir,
      log: (line) => logger.debug({ from: 'postgres' }, line),
      ...(onServerSpawn === undefined ? {} : { onSpawn: onServerSpawn }),
      onExit: (exit) => logger.error({ exit }, 'PostgreSQL ended unexpectedly; restarting it'),
      onRestart: ({ downMs }) => logger.info({ downMs: Math.round(downMs) }, 'PostgreSQL is available again'),
      onGiveUp: (error) => life.fail(error),
    })
    return { value, stop: () => value.stop() }
  })
  return { address: server.connection, folder: server.dataDir, notices: server.notices }
}

/** SQLSTATE 28 and 3D000: the server rejects the user, the password or the database. */
const REFUSED = /^(28[0-9A-Z]{3}|3D000)$/

function unreachable(error: unknown, config: InfrastructureConfig): unknown {
  if (config.databaseUrl === undefined) return error
  if (REFUSED.test(String((error as { code?: unknown }).code))) {
    return new ServiceError(
      'invalid_state',
      `the database of SKEIN_DATABASE_URL rejected the connection (${errorMessageOf(error)}); check its user, password and database name`,
      { cause: error },
    )
  }
  if (!(error instanceof ServiceError) || error.kind !== 'unavailable') return error
  return new ServiceError(
    'unavailable',
    `the database of SKEIN_DATABASE_URL is unreachable (${errorMessageOf(error.cause ?? error)}); check that the server is running and the address is correct`,
    { cause: error },
  )
}
