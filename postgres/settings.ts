/** The settings that say where an installation keeps its data, and the key of its secrets. */
import { secret, text } from '#core/config/index.ts'

export const INSTALLATION_SETTINGS = {
  dataDir: text(
    'SKEIN_DATA_DIR',
    './data',
    'Folder of all data: embedded database, module cache, keys, first admin secret',
  ),
  databaseUrl: secret(
    'SKEIN_DATABASE_URL',
    'postgres:// address of an external PostgreSQL 15 or newer; none: the embedded one',
  ),
  secretKey: secret(
    'SKEIN_SECRET_KEY',
    '32 bytes in base64 that encrypt every stored secret; required with SKEIN_DATABASE_URL, otherwise created in the data folder',
  ),
} as const
