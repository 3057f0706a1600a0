/** Settings of `npm run backup` and `npm run restore`. */
import { optionalText } from '../config/index.ts'
import type { ConfigOf } from '../config/index.ts'
import { INFRASTRUCTURE_SETTINGS } from '../infrastructure/index.ts'
import { LOG_LEVEL_SETTING } from '../logging/index.ts'

export const BACKUP_SETTINGS = {
  file: optionalText('SKEIN_BACKUP_FILE', 'File of the backup'),
  keyFile: optionalText(
    'SKEIN_KEY_FILE',
    'File of a secret key: `backup` writes a copy of the key to it, `restore` reads the key of the backup from it',
  ),
  dataDir: INFRASTRUCTURE_SETTINGS.dataDir,
  databaseUrl: INFRASTRUCTURE_SETTINGS.databaseUrl,
  secretKey: INFRASTRUCTURE_SETTINGS.secretKey,
  ...LOG_LEVEL_SETTING,
} as const

export type BackupConfig = ConfigOf<typeof BACKUP_SETTINGS>
