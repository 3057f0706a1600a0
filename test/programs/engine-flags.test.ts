// The memory of the programs depends on flags of the engine, which are part of their commands (decisions 0096 and 0122): all commands have the same.
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT } from './deployment-files.ts'

const FLAGS = ['--max-semi-space-size=16', '--heap-growing-percent=50', '--no-allocation-site-pretenuring']
const ALLOCATOR = /MALLOC_ARENA_MAX(?:=|: ')1\b/
const PROGRAMS = ['start', 'api', 'manager', 'worker', 'proxy']

const textOf = (...path: string[]) => readFileSync(join(ROOT, ...path), 'utf8')
const { scripts } = JSON.parse(textOf('package.json')) as { scripts: Record<string, string> }
const UNITS = readdirSync(join(ROOT, 'deploy/systemd')).filter((name) => name.endsWith('.service'))

const COMMANDS: [string, string][] = [
  ...PROGRAMS.map((name): [string, string] => [`npm run ${name}`, scripts[name] ?? '']),
  ...UNITS.map((name): [string, string] => [name, textOf('deploy/systemd', name)]),
  ['skein up', textOf('cli/commands/up.ts')],
]

test.each(COMMANDS)('%s limits the memory of the engine', (_name, text) => {
  expect(FLAGS.filter((flag) => !text.includes(flag))).toEqual([])
  expect(text).toMatch(ALLOCATOR)
})
