export { backUp, restore } from './commands.ts'
export { BACKUP_SETTINGS } from './settings.ts'
