/** `npm run backup -- FILE`: writes the whole database to one file. Skein may be running. */
import { BACKUP_SETTINGS, backUp } from '#postgres/backup/index.ts'
import { runProgram } from '#core/program/index.ts'

await runProgram({
  name: 'backup',
  summary: 'Writes everything in the database to FILE, as of one moment. Skein may run meanwhile.',
  settings: { backup: BACKUP_SETTINGS },
  operand: { name: 'FILE', setting: 'SKEIN_BACKUP_FILE' },
  flags: { 'with-key': { setting: 'SKEIN_KEY_FILE' } },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  async run(life, config, logger) {
    process.stdout.write(await backUp(life, config.backup, logger))
    void life.stop()
  },
})
