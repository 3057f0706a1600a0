/** `npm run restore -- FILE`: a backup into an empty installation, embedded or external. */
import { BACKUP_SETTINGS, restore } from '#postgres/backup/index.ts'
import { runProgram } from '#core/program/index.ts'

await runProgram({
  name: 'restore',
  summary: 'Restores the backup in FILE into an empty data folder, or into the empty database of SKEIN_DATABASE_URL.',
  settings: { backup: BACKUP_SETTINGS },
  operand: { name: 'FILE', setting: 'SKEIN_BACKUP_FILE' },
  flags: { key: { setting: 'SKEIN_KEY_FILE' } },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  async run(life, config, logger) {
    const { AFTER_RESTORE } = await import('#api/config.ts')
    process.stdout.write(await restore(life, config.backup, { logger, statements: AFTER_RESTORE }))
    void life.stop()
  },
})
