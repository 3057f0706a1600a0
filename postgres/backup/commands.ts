/** `npm run backup` and `npm run restore`. Both return the text to print. */
import { join, resolve } from 'node:path'
import { readBuildInfo } from '#core/build-info.ts'
import { MIGRATIONS_FOLDER, readMigrations } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createKeyring, findMasterKey, storeMasterKey, readMasterKey, SECRET_KEY_FILE } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { UsageError } from '#core/program/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { formatDurationMs, monotonicMs } from '#core/time.ts'
import { connectToExisting, connectToOwn } from './connection.ts'
import { recordBackup } from '../last-backup.ts'
import { checkBackup, requireEmpty, restoreBackup } from './restore.ts'
import type { BackupConfig } from './settings.ts'
import { takeBackup } from './take.ts'

const BYTES_PER_KIB = 1024
const BYTES_PER_MIB = 1024 * BYTES_PER_KIB

const sizeOf = (bytes: number) =>
  bytes < BYTES_PER_MIB ? `${(bytes / BYTES_PER_KIB).toFixed(1)} KiB` : `${(bytes / BYTES_PER_MIB).toFixed(1)} MiB`

/** Returns what to print. */
export function backUp(life: Lifecycle, config: BackupConfig, logger: Logger): Promise<string> {
  return untilDone(life, 'backup', () => writeBackup(life, config, logger))
}

/** `statements` are executed on the restored rows, in the same transaction. */
export type RestoreOptions = { logger: Logger; statements: readonly string[] }

/** Returns what to print. */
export function restore(life: Lifecycle, config: BackupConfig, options: RestoreOptions): Promise<string> {
  return untilDone(life, 'restore', () => readBackup(life, config, options))
}

/** A stop waits until the partial file or transaction is removed, and makes the program fail. */
function untilDone(life: Lifecycle, name: string, work: () => Promise<string>): Promise<string> {
  return life.start(name, async () => {
    try {
      return { value: await work(), stop: () => Promise.resolve() }
    } catch (error) {
      if (life.signal.aborted)
        life.fail(new ServiceError('unavailable', `the ${name} was interrupted`, { cause: error }))
      throw error
    }
  })
}

async function writeBackup(life: Lifecycle, config: BackupConfig, logger: Logger): Promise<string> {
  const path = fileOf(config)
  const beganMs = monotonicMs()
  const { keyFile } = config
  const key = keyFile === undefined ? undefined : await findMasterKey(config.secretKey, resolve(config.dataDir))
  if (keyFile !== undefined && key === undefined)
    throw new ServiceError(
      'invalid_state',
      'the secret key is missing: set SKEIN_SECRET_KEY, or SKEIN_DATA_DIR to the folder that holds it',
    )
  const client = await connectToExisting(life, config, logger)
  const { bytes, rows, secretKeyFingerprint } = await takeBackup(client, {
    path,
    version: readBuildInfo().version,
    signal: life.signal,
    check(fingerprint) {
      if (key !== undefined && fingerprint !== null && createKeyring(key).fingerprint !== fingerprint)
        throw new ServiceError(
          'invalid_state',
          'SKEIN_SECRET_KEY (or the data folder) does not belong to this database',
        )
    },
  })
  // The file is complete in any case. A standby cannot be written to.
  await recordBackup(client, bytes).catch((error: unknown) => {
    logger.warn({ err: error }, 'failed to record the time of the backup: skein doctor does not see this backup')
  })
  if (keyFile !== undefined && key !== undefined) await storeMasterKey(resolve(keyFile), key)
  return [
    `wrote ${path}: ${rows} rows, ${sizeOf(bytes)}, in ${formatDurationMs(monotonicMs() - beganMs)}`,
    keyFile !== undefined
      ? `wrote the secret key to ${resolve(keyFile)}: keep it apart from the backup. Both together open every stored secret`
      : secretKeyFingerprint === undefined
        ? 'the backup holds no secrets yet'
        : 'the secret key is not in it: without the key the backup cannot be restored (--with-key KEYFILE writes a copy)',
    '',
  ].join('\n')
}

async function readBackup(
  life: Lifecycle,
  config: BackupConfig,
  { logger, statements }: RestoreOptions,
): Promise<string> {
  const path = fileOf(config)
  const beganMs = monotonicMs()
  const migrations = await readMigrations(MIGRATIONS_FOLDER)
  const backup = await checkBackup(path, migrations)
  const dataDir = resolve(config.dataDir)
  const key = await keyOf(config, dataDir)
  const { secret_key_fingerprint: fingerprint, skein_version: version, taken_at: takenAt } = backup.manifest
  if (fingerprint !== null && key === undefined)
    throw new ServiceError(
      'invalid_state',
      `${path} requires its secret key: give it with --key KEYFILE or SKEIN_SECRET_KEY`,
    )
  if (fingerprint !== null && key !== undefined && createKeyring(key).fingerprint !== fingerprint)
    throw new ServiceError(
      'invalid_state',
      `the secret key does not match ${path}: give the key that was used when it was written, with --key KEYFILE or SKEIN_SECRET_KEY`,
    )
  const isEmbedded = config.databaseUrl === undefined
  const keptIn = join(dataDir, SECRET_KEY_FILE)
  const present = isEmbedded ? await readMasterKey(keptIn) : undefined
  if (key !== undefined && present !== undefined && !present.equals(key))
    throw new ServiceError('invalid_state', `${keptIn} holds another secret key: set SKEIN_DATA_DIR to a new folder`)
  const client = await connectToOwn(life, config, logger)
  await requireEmpty(client)
  const rows = await restoreBackup(client, backup, {
    migrations,
    logger,
    signal: life.signal,
    statements,
    // The key is stored before the commit: no program starts on a database without its key.
    onLoaded: async () => {
      if (isEmbedded && key !== undefined) await storeMasterKey(keptIn, key)
    },
  })
  return [
    `restored ${path} (Skein ${version}, ${takenAt}): ${rows} rows in ${formatDurationMs(monotonicMs() - beganMs)}`,
    key === undefined
      ? 'the backup holds no secrets'
      : isEmbedded
        ? `the secret key is in ${keptIn}`
        : 'start every program with this SKEIN_DATABASE_URL and the key of the backup as SKEIN_SECRET_KEY',
    '',
  ].join('\n')
}

async function keyOf(config: BackupConfig, dataDir: string): Promise<Buffer | undefined> {
  if (config.keyFile === undefined) return await findMasterKey(config.secretKey, dataDir)
  const key = await readMasterKey(resolve(config.keyFile))
  if (key === undefined) throw new ServiceError('invalid_state', `there is no file ${resolve(config.keyFile)}`)
  return key
}

function fileOf({ file }: BackupConfig): string {
  if (file === undefined) throw new UsageError('FILE is missing; see --help')
  return resolve(file)
}
