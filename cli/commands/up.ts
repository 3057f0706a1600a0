/** `skein up`: what `npm start` runs, in this terminal. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { HOME, IS_BUILT, SINGLE_FILE } from '#core/installation.ts'
import type { Cli, Group } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'

export const up: Group = {
  name: 'up',
  needsServer: false,
  summary: 'start everything on this machine, as npm start does',
  commands: [
    {
      words: '',
      args: '',
      tail: 'none',
      summary:
        'start everything on this machine; Ctrl-C stops it. Settings are environment variables: docs/settings.md',
      example: '',
      run: start,
    },
  ],
}

/** The flags of the scripts of package.json (decisions 0096 and 0122). */
const FLAGS = [
  '--max-semi-space-size=16',
  '--heap-growing-percent=50',
  '--no-allocation-site-pretenuring',
  '--disable-warning=ExperimentalWarning',
]
const SERVER = IS_BUILT ? [join(HOME, 'all.js')] : [join(HOME, 'programs', 'run.ts'), 'all']
const ALLOCATOR = { MALLOC_ARENA_MAX: '1' }

async function start(cli: Cli): Promise<void> {
  if (SINGLE_FILE !== undefined)
    throw new CommandError(
      'the server is not part of this file: install Skein from skein-VERSION.tar.gz of the release',
    )
  const child = spawn(process.execPath, [...FLAGS, ...SERVER], {
    cwd: HOME,
    stdio: 'inherit',
    env: {
      ...cli.settings.environment,
      ...ALLOCATOR,
      NODE_COMPILE_CACHE: join(HOME, 'node_modules', '.cache', 'node'),
    },
  })
  // A terminal sends Ctrl-C to both processes; a signal to this process alone must stop the child too.
  cli.signal.addEventListener('abort', () => child.kill('SIGTERM'), { once: true })
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', (error) => reject(new CommandError(`cannot start: ${error.message}`)))
    child.once('exit', (status, signal) => resolve(status ?? (signal === null ? 1 : 128)))
  })
  process.exitCode = code
}
