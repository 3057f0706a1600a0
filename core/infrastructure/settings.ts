/** Settings of what every process stands on: data folder, database, hints, secret key, log. */
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
    'Accept a server with fsync, full_page_writes or synchronous_commit off',
  ),
  redisUrl: secret('SKEIN_REDIS_URL', 'redis:// address for hints between processes; none: within the process'),
  secretKey: secret(
    'SKEIN_SECRET_KEY',
    '32 bytes in base64 that every stored secret depends on; required with SKEIN_DATABASE_URL, else made in the data folder',
  ),
  secretKeyPrevious: secret(
    'SKEIN_SECRET_KEY_PREVIOUS',
    'the secret key until now, at the first start with another one: everything is sealed anew before anything is served',
  ),
  ...LOG_LEVEL_SETTING,
  ...STREAM_SETTINGS,
} as const

export type GroundConfig = ConfigOf<typeof INFRASTRUCTURE_SETTINGS>
