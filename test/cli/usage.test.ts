/** Words, arities, help and completion: what needs no platform (contract section 13). */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import type { Command, Group } from '#cli/shared/command.ts'
import { UsageError } from '#cli/shared/failures.ts'
import { GROUPS } from '#cli/groups.ts'
import { commandHelp, exampleLine } from '#cli/help.ts'
import { renderManPage } from '#cli/man-page.ts'
import { resolveCommand, slotsOf, usageOf } from '#cli/shared/resolve.ts'
import { importsOf, readSources } from '../architecture/source-imports.ts'
import { createHome } from './skein.ts'

/** A port that nobody listens on: reserved, and refused at once. */
const NOWHERE = 'http://127.0.0.1:1'
const home = createHome({ SKEIN_URL: NOWHERE, SKEIN_TOKEN: 'a.b.c' })
afterAll(() => home[Symbol.dispose]())

const rows: { name: string; group: Group; command: Command }[] = []
for (const entry of GROUPS) {
  const group = await entry.load()
  for (const command of group.commands) rows.push({ name: entry.name, group, command })
}

const wordsOf = ({ words }: Command) => (words === '' ? [] : words.split(' '))
/** Arguments of the right number. */
const fitting = (args: string) =>
  slotsOf(args)
    .filter((slot) => !slot.isOptional)
    .map((slot) => (slot.name.startsWith('JSON') ? '{}' : 'x'))

describe('wrong usage', () => {
  it.each(rows.map((row) => [usageOf(row.name, row.command), row] as const))(
    '%s',
    (usage, { name, group, command }) => {
      const words = wordsOf(command)
      const tooMany = [...words, ...Array.from({ length: 12 }, () => 'x')]
      expect(() => resolveCommand(group, name, tooMany)).toThrow(UsageError)
      const caught = catchUsage(() => resolveCommand(group, name, tooMany))
      expect(caught.usage).toContain(usage)
      if (slotsOf(command.args).some((slot) => !slot.isOptional) && words.length > 0)
        expect(() => resolveCommand(group, name, words)).toThrow(UsageError)
      const resolved = resolveCommand(group, name, [...words, ...fitting(command.args)])
      expect(resolved.command.words).toBe(command.words)
    },
  )

  it.each([
    [['clients', 'frobnicate'], 'commands: create, get'],
    [['nonsense'], 'unknown command group nonsense'],
    [['clients', 'get'], 'usage: skein clients get <client_id> [<domain_id>] [<user_token>]'],
    [['clients', 'get', 'all', '--frobnicate'], 'unknown flag --frobnicate'],
    [['clients', 'get', 'all', '--limit'], '--limit requires a value'],
    [['clients', 'get', 'all', '--limit', 'many'], '--limit must be a whole number'],
    [['clients', 'get', 'all', '--wait'], 'this command has no flag --wait'],
    [['certs', 'get', 'all'], 'a domain is required'],
    [['health', 'nothing'], 'unknown service nothing'],
    [['completion', 'csh'], 'completion is not available for csh'],
  ])('skein %j ends with 2 and the reason on stderr', async (args, text) => {
    const ended = await home.run(args)
    expect(ended).toMatchObject({ code: 2, stdout: '' })
    expect(ended.stderr).toContain(text)
  })

  it('without a command shows all commands, on stderr, with 2', async () => {
    const ended = await home.run([])
    expect(ended).toMatchObject({ code: 2, stdout: '' })
    for (const group of GROUPS) expect(ended.stderr).toContain(group.name)
  })

  it('is yellow on a terminal', async () => {
    const ended = await home.runOnTerminal(['clients', 'get'])
    expect(ended.code).toBe(2)
    expect(ended.stdout).toContain('\u001B[33musage:\u001B[39m')
  })
})

function catchUsage(call: () => unknown): UsageError {
  try {
    call()
  } catch (error) {
    if (error instanceof UsageError) return error
  }
  throw new Error('no UsageError')
}

describe('an unreachable server', () => {
  it.each(['clients get all', 'users token a b', 'messages send c [{}] secret', 'tasks get all', 'health users'])(
    'is reported by %s, with advice, and ends with 1',
    async (line) => {
      const ended = await home.run(line.split(' '))
      expect(ended).toMatchObject({ code: 1, stdout: '' })
      expect(ended.stderr).toContain(`error: connection refused by ${NOWHERE}`)
      expect(ended.stderr).toContain('skein up')
    },
  )

  it('is red on a terminal', async () => {
    const ended = await home.runOnTerminal(['clients', 'get', 'all'])
    expect(ended.stdout).toContain('\u001B[31merror:\u001B[39m')
  })

  it('is reported for an unknown name as well', async () => {
    const ended = await home.run(['users', 'profile', '--url', 'http://nowhere.invalid'])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toMatch(/unknown host nowhere\.invalid|cannot reach/)
  })
})

describe('words', () => {
  const clients = rows.find((row) => row.name === 'clients')?.group
  if (clients === undefined) throw new Error('no clients')
  const resolve = (...words: string[]) => {
    const { command, args, rest } = resolveCommand(clients, 'clients', words)
    return { words: command.words, args, rest }
  }

  it('may precede or follow the entity, as in each product version', () => {
    expect(resolve('get', 'c1', 'd', 't')).toEqual({ words: 'get', args: { client_id: 'c1' }, rest: ['d', 't'] })
    expect(resolve('c1', 'get', 'd', 't')).toEqual({ words: 'get', args: { client_id: 'c1' }, rest: ['d', 't'] })
    expect(resolve('all', 'get', 'd', 't')).toEqual({ words: 'get all', args: {}, rest: ['d', 't'] })
    expect(resolve('get', 'all', 't')).toEqual({ words: 'get all', args: {}, rest: ['t'] })
    expect(resolve('c1', 'update', 'tags', '["a"]')).toEqual({
      words: 'update tags',
      args: { client_id: 'c1', tags: '["a"]' },
      rest: [],
    })
  })

  it('of roles are accepted in the order of every product version', () => {
    const args = { client_id: 'c1', role_id: 'r1', new_name: 'n' }
    expect(resolve('roles', 'update', 'n', 'r1', 'c1', 'd', 't')).toMatchObject({ args, rest: ['d', 't'] })
    expect(resolve('c1', 'roles', 'update', 'r1', 'n', 'd', 't')).toMatchObject({ args, rest: ['d', 't'] })
    expect(resolve('c1', 'roles', 'get', 'all')).toMatchObject({ words: 'roles get all', args: { client_id: 'c1' } })
  })

  it('accept the types of a connection at the usual position, or without types', () => {
    const ids = { client_id: 'c1', channel_id: 'ch1' }
    expect(resolve('connect', 'c1', 'ch1', 'd', 't')).toEqual({ words: 'connect', args: ids, rest: ['d', 't'] })
    expect(resolve('connect', 'c1', 'ch1', '["publish"]', 'd', 't')).toEqual({
      words: 'connect',
      args: { ...ids, types: '["publish"]' },
      rest: ['d', 't'],
    })
  })
})

describe('help', () => {
  it('has an example for every command, and its flags', () => {
    for (const { name, group, command } of rows) {
      const text = commandHelp(name, [command], group)
      expect(text).toContain(usageOf(name, command))
      expect(text).toContain(exampleLine(name, command))
      for (const flag of command.flags ?? []) expect(text).toContain(`--${flag}`)
    }
  })

  it('exists for every command, on stdout, with 0', async () => {
    for (const args of [['--help'], ['help', 'flags'], ['clients', '--help'], ['clients', 'update', 'tags', '-h']])
      expect(await home.run(args)).toMatchObject({ code: 0, stderr: '' })
  })

  it('loads no command group before it is required, to be fast', () => {
    const sources = new Map(readSources().map((source) => [source.path, source]))
    const loaded = new Set<string>()
    const load = (path: string): void => {
      const source = sources.get(path)
      if (source === undefined || loaded.has(path)) return
      loaded.add(path)
      const statics = source.text.replaceAll(/import\('[^']+'\)/g, 'null')
      for (const { to, isType } of importsOf({ path, text: statics }).imports) if (!isType) load(to)
    }
    load('cli/main.ts')
    load('cli/help.ts')
    expect([...loaded].filter((path) => path.startsWith('cli/commands/'))).toEqual([])
    expect(loaded.size).toBeLessThan(12)
  })

  it('as a manual page contains every command', async () => {
    const page = await renderManPage()
    for (const { name, command } of rows.filter((row) => row.command.isOlder !== true))
      expect(page).toContain(usageOf(name, command).replaceAll('-', '\\-'))
  })
})

describe('completion', () => {
  it('offers the next word, and the flags of a command', async () => {
    const script = join(home.folder, 'completion.bash')
    writeFileSync(script, (await home.run(['completion', 'bash'])).stdout)
    const complete = (...words: string[]) => {
      const quoted = words.map((word) => `'${word}'`).join(' ')
      const line = `source ${script}; COMP_WORDS=(${quoted}); COMP_CWORD=${words.length - 1}; _skein; echo "\${COMPREPLY[@]}"`
      const ended = spawnSync('bash', ['--norc', '-c', line], {
        stdio: ['ignore', 'pipe', 'pipe'],
        encoding: 'utf8',
        cwd: home.folder,
        timeout: 60_000,
      })
      expect(ended.stderr).toBe('')
      return ended.stdout.trim().split(' ')
    }
    expect(complete('skein', 'chan')).toEqual(['channels'])
    expect(complete('skein', 'clients', 'update', '')).toEqual(['tags', 'secret'])
    expect(complete('skein', 'tasks', 'logs', 'x', '--fo')).toEqual(['--follow'])
    expect(complete('skein', 'clients', 'get', 'all', '--of')).toEqual(['--offset'])
    expect(complete('skein', 'completion', '')).toEqual(['bash', 'zsh', 'fish'])
  })

  it.each(['bash', 'zsh', 'fish'])('of %s knows every group', async (shell) => {
    const { stdout } = await home.run(['completion', shell])
    for (const group of GROUPS) expect(stdout).toContain(group.name)
  })
})
