/** Settings that every process with a database has: data folder, database, bus, secret key, log. */
import { flag, secret, text } from '../config/index.ts'
import type { ConfigOf } from '../config/index.ts'
import { LOG_LEVEL_SETTING } from '../logging/index.ts'
import { STREAM_SETTINGS } from '../streams/index.ts'

export const INFRASTRUCTURE_SETTINGS = {
  dataDir: text(
    'SKEIN_DATA_DIR',
    './data',
    'Folder of all data: embedded database, module cache, keys, first admin secret',
  ),
  databaseUrl: secret(
    'SKEIN_DATABASE_URL',
    'postgres:// address of an external PostgreSQL 15 or newer; none: the embedded one',
  ),
  databaseUnsafe: flag(
    'SKEIN_DATABASE_UNSAFE',
    false,
    'Accept a database server with fsync, full_page_writes or synchronous_commit off',
  ),
  databaseHa: flag(
    'SKEIN_DATABASE_HA',
    false,
    'Require synchronous standbys of SKEIN_DATABASE_URL: an acknowledgement then survives the loss of the primary',
  ),
  databaseReplicaUrl: secret(
    'SKEIN_DATABASE_REPLICA_URL',
    'postgres:// address of a standby that serves message reads and exports; none: the primary serves them',
  ),
  redisUrl: secret(
    'SKEIN_REDIS_URL',
    'redis:// address for hints between the nodes of several machines; none: within this machine',
  ),
  secretKey: secret(
    'SKEIN_SECRET_KEY',
    '32 bytes in base64 that encrypt every stored secret; required with SKEIN_DATABASE_URL, otherwise created in the data folder',
  ),
  secretKeyPrevious: secret(
    'SKEIN_SECRET_KEY_PREVIOUS',
    'the previous secret key, for the first start with a new one: stored secrets are encrypted again before requests are served',
  ),
  ...LOG_LEVEL_SETTING,
  ...STREAM_SETTINGS,
} as const

export type InfrastructureConfig = ConfigOf<typeof INFRASTRUCTURE_SETTINGS>
