// The worker as one file (decision 0121): it needs neither Node nor npm nor a network, and refuses clearly what cannot work.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { readStatus } from '#worker/index.ts'
import { health } from '../harness/health.ts'
import { until } from '../harness/until.ts'
import { componentFromText } from '../worker/pool.ts'
import { JOIN_TOKEN, ScriptedManager, runRef } from '../worker/scripted-manager.ts'
import { copyOf, createEdgeFiles } from './edge-files.ts'
import type { EdgeFiles } from './edge-files.ts'

const COMPONENT = `(component (core module $m (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m)) (func (export "run") (result bool) (canon lift (core func $i "f"))))`

type Ended = { code: number; output: string }

let files: EdgeFiles
let whole: string
let small: string
let folders = 0

beforeAll(async () => {
  files = await createEdgeFiles()
  whole = files.whole()
  small = smallFile('0.1.0')
})
afterAll(() => rmSync(files.folder, { recursive: true, force: true }))

/** Shows its help, and cannot run modules. */
const smallFile = (version: string) => files.small(version, (app) => rmSync(join(app, 'staged'), { recursive: true }))

/** A new folder for unpacked programs. */
function programFolder(): string {
  const folder = join(files.folder, `programs-${(folders += 1)}`)
  mkdirSync(folder)
  return folder
}

async function run(
  command: string,
  args: readonly string[],
  env: Record<string, string> = {},
  onOutput: (text: string) => void = () => undefined,
): Promise<Ended> {
  return await new Promise((resolve) => {
    const child = execFile(command, [...args], { env, cwd: files.folder, timeout: 60_000 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), output: `${stdout}${stderr}` }),
    )
    child.stdout?.on('data', onOutput)
  })
}
const help = (file: string, folder: string) => run(file, ['--help'], { SKEIN_PROGRAM_DIR: folder })

/** Folders of versions, without drafts. */
const versionsIn = (folder: string) => readdirSync(folder).filter((name) => !name.startsWith('.'))

/** What a machine without Node, npm, a network and a home has: libraries, and the commands that the file uses. */
function bareMachine(file: string, args: readonly string[]): [string, string[]] {
  const tools = ['sh', 'id', 'tail', 'wc', 'tr', 'tar', 'gzip', 'sha256sum', 'mkdir', 'mktemp', 'rm', 'chmod', 'uname']
  const paths = ['/lib', '/lib64', '/usr/lib'].filter((path) => existsSync(path))
  return [
    'bwrap',
    [
      ['--unshare-all', '--uid', '0', '--gid', '0', '--die-with-parent', '--clearenv'],
      ...paths.map((path) => ['--ro-bind', path, path]),
      ...tools.map((tool) => ['--ro-bind', `/usr/bin/${tool}`, `/usr/bin/${tool}`]),
      ['--symlink', 'usr/bin', '/bin', '--proc', '/proc', '--dev', '/dev', '--dir', '/var'],
      ['--ro-bind', file, '/skein-worker', '--', '/skein-worker', ...args],
    ].flat(),
  ]
}

test('it runs on a machine without Node, a network, a home and a PATH, and unpacks once', async () => {
  const { code, output } = await run(...bareMachine(whole, ['--help']))
  expect(output).toContain('skein-worker: unpacking version 0.1.0 to /var/lib/skein/programs, once')
  expect(output).toContain('Usage: skein-worker [command] [flags]')
  expect(code).toBe(0)
  const folder = programFolder()
  expect((await help(small, folder)).output).toContain('unpacking')
  expect((await help(small, folder)).output).not.toContain('unpacking')
})

test('a user without a home unpacks in the data folder', async () => {
  const data = join(files.folder, 'data-of-nobody')
  const options = ['--unshare-user', '--uid', '1000', '--gid', '1000', '--die-with-parent', '--clearenv']
  const machine = ['--ro-bind', '/', '/', '--bind', files.folder, files.folder, '--proc', '/proc', '--dev', '/dev']
  const { output } = await run('bwrap', [...options, ...machine, '--setenv', 'SKEIN_DATA_DIR', data, small, '--help'])
  expect(output).toContain(`unpacking version 0.1.0 to ${data}/programs, once`)
  expect(output).toContain('Usage: skein-worker')
})

test('a folder of another user is refused', async () => {
  const cache = programFolder()
  const folder = join(cache, 'skein')
  // /usr belongs to root, and another folder can be given away by root alone.
  if (process.getuid?.() !== 0) symlinkSync('/usr', folder)
  else {
    mkdirSync(folder)
    chownSync(folder, 12_345, 12_345)
  }
  const options = ['--unshare-user', '--uid', '1000', '--gid', '1000', '--die-with-parent', '--clearenv']
  const machine = ['--ro-bind', '/', '/', '--proc', '/proc', '--dev', '/dev', '--setenv', 'XDG_CACHE_HOME', cache]
  const { code, output } = await run('bwrap', [...options, ...machine, small, '--help'])
  expect(output).toContain(`${folder} belongs to another user: set SKEIN_PROGRAM_DIR`)
  expect(code).toBe(1)
})

test('a worker of the file joins, runs a module and a component, and drains', async () => {
  await using manager = await ScriptedManager.start()
  const data = join(files.folder, 'data')
  const token = join(files.folder, 'token')
  writeFileSync(token, JOIN_TOKEN)
  const child = spawn(whole, ['--manager', manager.address, '--token-file', token, '--name', 'edge'], {
    env: { SKEIN_PROGRAM_DIR: programFolder(), SKEIN_DATA_DIR: data, SKEIN_WORKER_SLOTS: '1' },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  try {
    await until(() => manager.sessions > 0, 'the worker joins', 60_000)
    expect(manager.registrations[0]).toMatchObject({ name: 'edge', version: '0.1.0' })
    manager.assign('add', 'run-1', { inputsJson: '[20, 22]' })
    expect((await manager.result('run-1')).resultsJson).toBe('[42]')
    manager.assign(await componentFromText(COMPONENT), 'run-3')
    expect((await manager.result('run-3')).resultsJson).toBe('true')
    expect(await health('worker', join(data, 'worker/status.sock'))).toBe('healthy')
    manager.assign('endless', 'run-2')
    await manager.running('run-2')
    let said = ''
    const environment = { SKEIN_PROGRAM_DIR: join(files.folder, `programs-${folders}`), SKEIN_DATA_DIR: data }
    const drained = run(whole, ['drain'], environment, (text) => (said += text))
    await until(() => manager.heard('drainState').some(({ draining }) => draining), 'it drains')
    // The command looks at the status a moment later.
    await until(() => said.includes('edge drains: 1 runs'), 'the command says so')
    expect((await readStatus(join(data, 'worker'))).runs).toHaveLength(1)
    manager.tell({ case: 'cancel', value: { runs: [runRef('run-2')] } })
    const { code, output } = await drained
    expect(output).toContain('edge drains: 1 runs')
    expect(output).toContain('edge is drained')
    expect(code).toBe(0)
    expect((await readStatus(join(data, 'worker'))).state).toBe('draining')
  } finally {
    child.kill('SIGTERM')
    await once(child, 'exit')
  }
})

describe('a file that was damaged', () => {
  test('refuses to start when it was cut, also after it was unpacked', async () => {
    const folder = programFolder()
    const cut = copyOf(small, 'cut')
    expect((await help(cut, folder)).code).toBe(0)
    const bytes = readFileSync(cut).length
    truncateSync(cut, bytes - 1000)
    expect(await help(cut, folder)).toEqual({
      code: 1,
      output: `skein-worker: ${cut} was cut or changed: it has ${bytes - 1000} bytes instead of ${bytes}. Copy the file again and compare it with SHA256SUMS\n`,
    })
  })

  test('refuses to unpack when a byte was changed', async () => {
    const folder = programFolder()
    const changed = copyOf(small, 'changed')
    const bytes = readFileSync(changed)
    const at = bytes.length - 5000
    bytes[at] = (bytes[at] ?? 0) ^ 1
    writeFileSync(changed, bytes)
    const { code, output } = await help(changed, folder)
    expect(output).toMatch(/was cut or changed: its SHA-256 does not match/)
    expect(code).toBe(1)
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('a folder that cannot be used', () => {
  /** Runs a file in a mount namespace with a small file system of these options. */
  const mounted = async (options: string, file: string, prepare = '') =>
    await run(
      'unshare',
      [
        '--map-root-user',
        '--mount',
        'sh',
        '-c',
        `mount -t tmpfs -o ${options} none "$1" && ${prepare || ':'} && SKEIN_PROGRAM_DIR="$1" "$2" --help`,
        'sh',
        programFolder(),
        file,
      ],
      { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' },
    )

  test('because programs may not be executed in it', async () => {
    const { code, output } = await mounted('noexec', whole)
    expect(output).toMatch(/does not allow programs to be executed \(mount option noexec\): set SKEIN_PROGRAM_DIR/)
    expect(code).toBe(1)
  })

  test('because it is read-only', async () => {
    const { code, output } = await mounted('size=1m', small, 'mount -o remount,ro "$1"')
    expect(output).toMatch(/cannot write to .*[Rr]ead-only.*: set SKEIN_PROGRAM_DIR to another folder/)
    expect(code).toBe(1)
  })

  test('because the disk is full, and leaves nothing there', async () => {
    const { code, output } = await mounted('size=1m', small, `trap 'ls -A "$1" | sed s/^/left:/' EXIT`)
    expect(output).toMatch(/failed to unpack \d+ MiB to .*No space left on device.*: free some space/)
    expect(output).not.toContain('left:')
    expect(code).toBe(1)
  })
})

test('four starts at once unpack one version, and all of them run', async () => {
  const folder = programFolder()
  const all = await Promise.all([1, 2, 3, 4].map(() => help(small, folder)))
  expect(all.map(({ code, output }) => ({ code, isHelp: output.includes('Usage:') }))).toEqual(
    all.map(() => ({ code: 0, isHelp: true })),
  )
  expect(readdirSync(folder)).toHaveLength(1)
})

test('a start that is killed while it unpacks leaves nothing that a later one could use', async () => {
  const folder = programFolder()
  for (const delayMs of [30, 100, 200, 350, 600, 900]) {
    const child = spawn(whole, ['--help'], { env: { SKEIN_PROGRAM_DIR: folder }, stdio: 'ignore', detached: true })
    await Promise.race([once(child, 'exit'), sleep(delayMs)])
    try {
      process.kill(-(child.pid as number), 'SIGKILL')
    } catch {
      // It has ended.
    }
    for (const name of versionsIn(folder)) expect(existsSync(join(folder, name, 'run'))).toBe(true)
  }
  const { code, output } = await help(whole, folder)
  expect(output).toContain('Usage: skein-worker')
  expect(code).toBe(0)
  expect(readdirSync(folder)).toHaveLength(1)
})

test('the current version, the one before it and those in use are kept', async () => {
  const folder = programFolder()
  const versions = ['0.1.0', '0.1.1', '0.1.2', '0.1.3', '0.1.4'].map((version) => smallFile(version))
  const [first = '', ...others] = versions
  await help(first, folder)
  const [oldest = ''] = versionsIn(folder)
  // Stands for a worker of that version.
  const user = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { argv0: join(folder, oldest, 'node') })
  try {
    for (const file of others) await help(file, folder)
    expect(versionsIn(folder).map((name) => name.replace(/-[0-9a-f]{12}$/, ''))).toEqual([
      'skein-worker-0.1.0',
      'skein-worker-0.1.3',
      'skein-worker-0.1.4',
    ])
  } finally {
    user.kill('SIGKILL')
    await once(user, 'exit')
  }
})

test('the same contents give the same bytes', () => {
  const [one, two] = [smallFile('0.2.0'), smallFile('0.2.0')]
  expect(dirname(one)).not.toBe(dirname(two))
  expect(readFileSync(one).equals(readFileSync(two))).toBe(true)
})
