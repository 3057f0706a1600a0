/** Settings of `npm run backup` and `npm run restore`. */
import { optionalText } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { INSTALLATION_SETTINGS } from '../settings.ts'

export const BACKUP_SETTINGS = {
  file: optionalText('SKEIN_BACKUP_FILE', 'File of the backup'),
  keyFile: optionalText(
    'SKEIN_KEY_FILE',
    'File of a secret key: `backup` writes a copy of the key to it, `restore` reads the key of the backup from it',
  ),
  ...INSTALLATION_SETTINGS,
  ...LOG_LEVEL_SETTING,
} as const

export type BackupConfig = ConfigOf<typeof BACKUP_SETTINGS>
