/**
 * What a process with a database needs, started in this order: server, safety, schema, secret
 * key, hints, sign of life. Stopped in reverse by the lifecycle.
 */
import { join, resolve } from 'node:path'
import { hostname } from 'node:os'
import { readBuildInfo } from '../build-info.ts'
import type { BuildInfo } from '../build-info.ts'
import { connectBus } from '../bus/index.ts'
import type { Bus } from '../bus/index.ts'
import { checkServerVersion, createDatabase, migrate, readMigrations } from '../database/index.ts'
import type { Database, DatabaseAddress } from '../database/index.ts'
import { checkServerSafety, createDiskGuard, superviseEmbeddedPostgres } from '../database/embedded/index.ts'
import { ServiceError } from '../errors/index.ts'
import { newId } from '../ids.ts'
import { HOME } from '../installation.ts'
import { createKeyring, loadMasterKey, parsePreviousKey, requireSameKey, rotateSecretKey } from '../keyring/index.ts'
import type { Keyring, SealedColumn } from '../keyring/index.ts'
import { sentenceOf } from '../program/index.ts'
import { connectSharedLimits } from '../limits/index.ts'
import type { SharedLimits } from '../limits/index.ts'
import type { Lifecycle } from '../program/index.ts'
import type { Logger } from '../logging/index.ts'
import { createStreams } from '../streams/index.ts'
import type { Streams } from '../streams/index.ts'
import { sleep } from '../time.ts'
import type { GroundConfig } from './settings.ts'
import { sql } from '../sql.ts'

export type Infrastructure = {
  readonly config: GroundConfig
  readonly logger: Logger
  readonly build: BuildInfo
  /** Absolute path of the data folder. */
  readonly dataDir: string
  readonly database: Database
  readonly keyring: Keyring
  readonly bus: Bus
  /** Where nodes share a Redis. */
  readonly limits: SharedLimits | undefined
  /** What all readers of this process share. */
  readonly streams: Streams
  /** Unique per process: its row in `nodes`. */
  readonly nodeId: string
  /** False while the disk below the embedded database is nearly full; ingest refuses until there is room again. */
  hasRoom(): boolean
  /** What the banner says about the database. */
  readonly databaseNote: string
  readonly notices: readonly string[]
}

export type InfrastructureOptions = {
  config: GroundConfig
  logger: Logger
  /** What kind of process this is, for `nodes`. */
  kind: string
  maxConnections: number
  /** Told what is being done, for whoever watches the start. */
  onStep?: (step: string) => void
  /** The embedded server has a process: whoever has work meanwhile lets it begin first. */
  onServerSpawn?: () => void
  /** What is sealed anew when the secret key changes. */
  sealed?: readonly SealedColumn[]
  /** Tests run many databases on one server and skip the embedded one. */
  address?: DatabaseAddress
}

export const MIGRATIONS_FOLDER = join(HOME, 'migrations')

const NODE_BEAT_MS = 10_000
/** Rows of nodes that were not seen for so long are removed. */
const NODE_FORGET_SECONDS = 86_400

export async function startInfrastructure(life: Lifecycle, options: InfrastructureOptions): Promise<Infrastructure> {
  const { config, logger, kind, onStep = () => undefined } = options
  const dataDir = resolve(config.dataDir)
  const build = readBuildInfo()
  // Before anything is started: an external database without its key is refused at once. Beside the embedded one the key is
  // made in the data folder, whose mode and owner the server settles first.
  const masterKey =
    config.secretKey === undefined && config.databaseUrl === undefined
      ? undefined
      : await loadMasterKey({ configured: config.secretKey, dataDir, isEmbedded: config.databaseUrl === undefined })
  const server = await findServer(life, options, dataDir)

  const database = await life.start('database connections', async () => {
    const value = createDatabase({
      address: server.address,
      maxConnections: options.maxConnections,
      applicationName: `skein ${kind}`,
      logger,
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
    onStep('checking the schema')
    await migrate(setup, migrations, logger)
  } finally {
    await setup.end()
  }
  const keyring = createKeyring(
    masterKey ?? (await loadMasterKey({ configured: config.secretKey, dataDir, isEmbedded: true })),
  )
  if (config.secretKeyPrevious !== undefined) {
    onStep('looking whether the secret key has changed')
    const previous = createKeyring(parsePreviousKey(config.secretKeyPrevious))
    await rotateSecretKey({ database, current: keyring, previous, columns: options.sealed ?? [], logger })
  }
  await requireSameKey(database.db, keyring.fingerprint)
  const bus = await life.start('hints', async () => {
    const value = await connectBus(config.redisUrl?.reveal(), logger)
    return { value, stop: () => value.close() }
  })
  const limits = await life.start('shared limits', async () => {
    const value = await connectSharedLimits(config.redisUrl?.reveal(), logger)
    return { value, stop: () => Promise.resolve(value?.close()) }
  })
  const nodeId = `${kind}-${hostname()}-${newId().slice(0, 8)}`
  await life.start('sign of life', () =>
    startBeat(database, { nodeId, kind, version: build.version, migration: migrations.length }, logger),
  )
  return {
    config,
    logger,
    build,
    dataDir,
    database,
    keyring,
    bus,
    limits,
    streams: createStreams(config),
    nodeId,
    hasRoom: server.hasRoom,
    databaseNote: server.note,
    notices: server.notices,
  }
}

type Server = {
  address: DatabaseAddress
  note: string
  notices: readonly string[]
  hasRoom: () => boolean
}

async function findServer(
  life: Lifecycle,
  { config, logger, address, onStep = () => undefined, onServerSpawn }: InfrastructureOptions,
  dataDir: string,
): Promise<Server> {
  if (address !== undefined) return { address, note: 'given', notices: [], hasRoom: () => true }
  if (config.databaseUrl !== undefined) {
    onStep('connecting to the database')
    const url = config.databaseUrl.reveal()
    if (!URL.canParse(url) || !/^postgres(ql)?:$/.test(new URL(url).protocol))
      throw new ServiceError(
        'malformed',
        'SKEIN_DATABASE_URL must be an address such as postgres://user:password@host:5432/skein',
      )
    return {
      address: { url },
      note: `PostgreSQL at ${new URL(url).host}`,
      notices: [],
      hasRoom: () => true,
    }
  }
  onStep('starting PostgreSQL')
  const embedded = await life.start('embedded PostgreSQL', async () => {
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
  const guard = await life.start('disk guard', async () => {
    const value = createDiskGuard({ path: embedded.dataDir })
    await value.refresh()
    return { value, stop: () => Promise.resolve(value.close()) }
  })
  return {
    address: embedded.connection,
    note: `embedded PostgreSQL in ${embedded.dataDir}`,
    notices: embedded.notices,
    hasRoom: () => guard.hasRoom(),
  }
}

/** SQLSTATE 28 and 3D000: the server is there and refuses the user, the password or the database. */
const REFUSED = /^(28[0-9A-Z]{3}|3D000)$/

function unreachable(error: unknown, config: GroundConfig): unknown {
  if (config.databaseUrl === undefined) return error
  if (REFUSED.test(String((error as { code?: unknown }).code))) {
    return new ServiceError(
      'invalid_state',
      `the database of SKEIN_DATABASE_URL refuses us (${sentenceOf(error)}): check user, password and database in it`,
      { cause: error },
    )
  }
  if (!(error instanceof ServiceError) || error.kind !== 'unavailable') return error
  return new ServiceError(
    'unavailable',
    `the database of SKEIN_DATABASE_URL cannot be reached (${sentenceOf(error.cause ?? error)}): check that it runs and that the address is right`,
    { cause: error },
  )
}

async function startBeat(
  database: Database,
  node: { nodeId: string; kind: string; version: string; migration: number },
  logger: Logger,
) {
  const stopping = new AbortController()
  const beat = () =>
    sql`INSERT INTO nodes (id, kind, version, migration) VALUES (${node.nodeId}, ${node.kind}, ${node.version}, ${node.migration})
      ON CONFLICT ON CONSTRAINT nodes_pkey DO UPDATE SET seen_at = now()`.execute(database.db)
  await beat()
  await sql`DELETE FROM nodes WHERE seen_at < now() - make_interval(secs => ${NODE_FORGET_SECONDS})`.execute(
    database.db,
  )
  const loop = (async () => {
    while (!stopping.signal.aborted) {
      await sleep(NODE_BEAT_MS, stopping.signal).catch(() => undefined)
      if (stopping.signal.aborted) return
      await beat().catch((error: unknown) => logger.debug({ err: error }, 'failed to record that the process is alive'))
    }
  })()
  return {
    value: undefined,
    async stop() {
      stopping.abort()
      await loop
      await sql`DELETE FROM nodes WHERE id = ${node.nodeId}`.execute(database.db).catch(() => undefined)
    },
  }
}
