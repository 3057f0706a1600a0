/** How `npm start` runs Node (docs/decisions/0027), for whoever does the same without npm: the flags stand in package.json alone. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const PACKAGE_FILE = join(import.meta.dirname, '..', 'package.json')

/** The flags between `node` and the program. */
export function nodeFlags(): string[] {
  const { scripts } = JSON.parse(readFileSync(PACKAGE_FILE, 'utf8')) as { scripts: Record<string, string> }
  const [, command = ''] = (scripts['start'] ?? '').split('exec node ')
  const flags = command.slice(0, Math.max(0, command.lastIndexOf(' programs/')))
  if (flags === '') throw new Error('package.json has no program behind the script start')
  return flags.split(' ')
}
