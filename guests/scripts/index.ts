export { MAX_SCRIPT_CHARACTERS, checkScript } from './check-script.ts'
