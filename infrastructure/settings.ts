/** Settings that every process with a database has: data folder, database, bus, secret key, log. */
import { flag, secret } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { STREAM_SETTINGS } from '#core/streams/index.ts'
import { INSTALLATION_SETTINGS } from '#postgres/settings.ts'

export const INFRASTRUCTURE_SETTINGS = {
  dataDir: INSTALLATION_SETTINGS.dataDir,
  databaseUrl: INSTALLATION_SETTINGS.databaseUrl,
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
  secretKey: INSTALLATION_SETTINGS.secretKey,
  secretKeyPrevious: secret(
    'SKEIN_SECRET_KEY_PREVIOUS',
    'the previous secret key, for the first start with a new one: stored secrets are encrypted again before requests are served',
  ),
  ...LOG_LEVEL_SETTING,
  ...STREAM_SETTINGS,
} as const

export type InfrastructureConfig = ConfigOf<typeof INFRASTRUCTURE_SETTINGS>
