// `skein-worker install`, `upgrade`, `back`: in a machine of bubblewrap with its own /opt, /etc, /var and /run, where
// systemctl-stand-in.mjs stands for systemd. That systemd starts the unit is not tested: it needs a systemd of its own.
import { execFile, spawn } from 'node:child_process'
import { createHash, generateKeyPairSync, sign } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { JOIN_TOKEN, ScriptedManager } from '../worker/scripted-manager.ts'
import { ROOT } from './deployment-files.ts'
import { createEdgeFiles } from './edge-files.ts'
import type { EdgeFiles } from './edge-files.ts'

type Ended = { code: number; output: string }

const ROOTS = ['opt', 'etc', 'var', 'run', 'usr-local-bin'] as const
const key = generateKeyPairSync('ed25519')

let files: EdgeFiles
let versions: { one: string; two: string; crashes: string; hangs: string }
let manager: ScriptedManager
let machine: Machine

/** A machine with a root of its own; its processes are those of this one. */
class Machine {
  readonly folder = mkdtempSync(join(tmpdir(), 'skein-machine-'))
  readonly #options: string[]

  constructor() {
    for (const name of ROOTS) mkdirSync(join(this.folder, name))
    for (const name of ['passwd', 'group', 'hosts', 'resolv.conf', 'ld.so.cache', 'nsswitch.conf'])
      if (existsSync(join('/etc', name))) copyFileSync(join('/etc', name), join(this.folder, 'etc', name))
    mkdirSync(join(this.folder, 'etc/systemd/system'), { recursive: true })
    const bin = join(this.folder, 'usr-local-bin')
    const standIn = readFileSync(join(ROOT, 'test/programs/systemctl-stand-in.mjs'), 'utf8')
    writeFileSync(join(bin, 'systemctl.mjs'), standIn)
    writeFileSync(join(bin, 'systemctl'), `#!/bin/sh\nexec ${process.execPath} /usr/local/bin/systemctl.mjs "$@"\n`)
    writeFileSync(join(bin, 'systemd-sysusers'), '#!/bin/sh\nexit 0\n')
    for (const name of ['systemctl', 'systemd-sysusers']) chmodSync(join(bin, name), 0o755)
    const binds = ROOTS.map((name) => ['--bind', join(this.folder, name), `/${name.replaceAll('-', '/')}`])
    this.#options = [
      ['--unshare-user', '--uid', '0', '--gid', '0', '--ro-bind', '/', '/', '--dev', '/dev', '--proc', '/proc'],
      ...binds,
      ['--ro-bind', files.folder, files.folder, '--ro-bind', ROOT, ROOT, '--clearenv'],
      ['--setenv', 'PATH', '/usr/local/bin:/usr/bin:/bin'],
    ].flat()
  }

  async run(...command: string[]): Promise<Ended> {
    return await new Promise((resolve) => {
      execFile('bwrap', [...this.#options, ...command], { timeout: 100_000 }, (error, stdout, stderr) =>
        resolve({ code: error === null ? 0 : Number(error.code ?? 1), output: `${stdout}${stderr}` }),
      )
    })
  }

  /** Runs a command, and kills it and what it started when it has printed `word`. */
  async runUntil(word: string, ...command: string[]): Promise<void> {
    const child = spawn('bwrap', [...this.#options, ...command], {
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    await new Promise<void>((resolve, reject) => {
      let text = ''
      child.stdout.setEncoding('utf8').on('data', (part: string) => {
        text += part
        if (text.includes(word)) process.kill(-(child.pid as number), 'SIGKILL')
      })
      child.once('exit', () =>
        text.includes(word) ? resolve() : reject(new Error(`it ended without ${word}: ${text}`)),
      )
    })
  }

  read(path: string): string {
    return readFileSync(join(this.folder, path), 'utf8')
  }

  /** The version of the unit, without its digest. */
  get current(): string {
    return basename(readlinkSync(join(this.folder, 'opt/skein-worker/current'))).replace(/-[0-9a-f]{12}$/, '')
  }

  get pid(): number {
    return Number(this.read('run/stand-in.pid'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.run('systemctl', 'stop')
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** Puts SHA256SUMS and its signature beside a file, as a release does. */
function release(file: string, privateKey = key.privateKey): string {
  const sha256 = createHash('sha256').update(readFileSync(file)).digest('hex')
  const sums = `${sha256}  ${basename(file)}\n`
  writeFileSync(join(dirname(file), 'SHA256SUMS'), sums)
  writeFileSync(join(dirname(file), 'SHA256SUMS.sig'), sign(null, Buffer.from(sums), privateKey))
  return file
}

const install = () =>
  machine.run(
    versions.one,
    'install',
    '--manager',
    manager.address,
    '--token-file',
    join(files.folder, 'token'),
    '--name',
    'edge',
  )
/** The version of the worker that joined last. */
const joined = () => manager.registrations.at(-1)?.version

beforeAll(async () => {
  files = await createEdgeFiles(key.publicKey.export({ type: 'spki', format: 'pem' }).toString())
  writeFileSync(join(files.folder, 'token'), `${JOIN_TOKEN}\n`)
  const broken = (script: string) => (app: string) => {
    writeFileSync(join(app, 'worker.js'), script)
  }
  versions = {
    one: files.small('1.0.0'),
    two: release(files.small('1.1.0')),
    crashes: release(files.small('1.2.0', broken('process.exit(3)\n'))),
    hangs: release(
      files.small(
        '1.3.0',
        broken("if (process.argv[2] === 'await-join') process.exit(1)\nsetInterval(() => {}, 1000)\n"),
      ),
    ),
  }
})
afterAll(() => rmSync(files.folder, { recursive: true, force: true }))
beforeEach(async () => {
  manager = await ScriptedManager.start()
  machine = new Machine()
  return async () => {
    await machine[Symbol.asyncDispose]()
    await manager[Symbol.asyncDispose]()
  }
})

test('install makes a service that joins, prints what it does, and can be repeated', async () => {
  const { code, output } = await install()
  expect(output.split('\n').map((line) => line.split(/ +/)[0])).toEqual([
    'program',
    'command',
    'settings',
    'token',
    'user',
    'unit',
    'run',
    'run',
    'run',
    'joined',
    // It unpacks itself first, which its error output says.
    'skein-worker:',
    '',
  ])
  expect(output).toMatch(new RegExp(`joined +${manager.address} as edge \\(worker-1\\), isolation level \\w+`))
  expect(code).toBe(0)
  expect(machine.read('etc/skein/credentials/worker-token').trim()).toBe(JOIN_TOKEN)
  expect(statSync(join(machine.folder, 'etc/skein/credentials/worker-token')).mode & 0o777).toBe(0o600)
  expect((await machine.run('skein-worker', 'status')).output).toMatch(/^Worker +edge {2}worker-1 .*Skein 1\.0\.0/)
  expect((await install()).code).toBe(0)
  const other = await machine.run(versions.two, 'install')
  expect(other).toMatchObject({
    code: 1,
    output: expect.stringContaining('is installed: use skein-worker upgrade FILE'),
  })
})

test('install without a token, and upgrade without an installation, say what is missing', async () => {
  expect((await machine.run(versions.one, 'install')).output).toMatch(/requires a join token: --token-file/)
  expect((await machine.run(versions.one, 'upgrade', versions.two)).output).toMatch(
    /no worker is installed by skein-worker install/,
  )
  expect((await machine.run(versions.one, 'upgrade')).output).toMatch(
    /the command is upgrade FILE \[SHA256\]; see --help/,
  )
  expect(readdirSync(join(machine.folder, 'opt'))).toEqual([])
})

test('upgrade replaces the version, keeps the one before, and back returns to it', async () => {
  await install()
  expect(joined()).toBe('1.0.0')
  const { code, output } = await machine.run('skein-worker', 'upgrade', versions.two)
  expect(output).toMatch(/switch [^]*joined +the new version has joined\ndone +skein-worker-1\.0\.0-\w+ is kept/)
  expect([code, machine.current, joined()]).toEqual([0, 'skein-worker-1.1.0', '1.1.0'])
  expect((await machine.run('skein-worker', 'upgrade', versions.two)).output).toMatch(/is installed already/)
  expect((await machine.run('skein-worker', 'back')).code).toBe(0)
  expect([machine.current, joined()]).toEqual(['skein-worker-1.0.0', '1.0.0'])
})

test('a version that ends or does not join is replaced by the one before', async () => {
  await install()
  for (const file of [versions.crashes, versions.hangs]) {
    const { code, output } = await machine.run('skein-worker', 'upgrade', file)
    expect(output).toMatch(/did not join within 60 s, and skein-worker-1\.0\.0-\w+ was started again/)
    expect([code, machine.current, joined()]).toEqual([1, 'skein-worker-1.0.0', '1.0.0'])
  }
  // The way back is the version that worked, not the one that was unpacked last.
  await machine.run('skein-worker', 'upgrade', versions.two)
  expect(readdirSync(join(machine.folder, 'opt/skein-worker/versions')).join(' ')).toMatch(
    /1\.0\.0-\w+ skein-worker-1\.1\.0/,
  )
})

describe('upgrade refuses a file', () => {
  test('without a digest, with another one, without a signature, or with one of another key', async () => {
    await install()
    const upgrade = async (...args: string[]) => (await machine.run('skein-worker', 'upgrade', ...args)).output
    const two = join(files.folder, 'other', 'skein-worker-linux-x64')
    mkdirSync(dirname(two))
    copyFileSync(versions.two, two)
    expect(await upgrade(two)).toMatch(/SHA256SUMS or SHA256SUMS\.sig is missing beside the file/)
    release(two, generateKeyPairSync('ed25519').privateKey)
    expect(await upgrade(two)).toMatch(/is not a signature of SHA256SUMS by the key of this version/)
    release(two)
    expect(await upgrade(two, '0'.repeat(64))).toMatch(/its SHA-256 is [0-9a-f]{64} instead of 0{64}/)
    writeFileSync(two, 'exit 0', { flag: 'a' })
    expect(await upgrade(two)).toMatch(/its SHA-256 is [0-9a-f]{64} instead of [0-9a-f]{64}/)
    expect(await upgrade(join(files.folder, 'absent'))).toMatch(/absent is refused: .*no such file/)
    expect(machine.current).toBe('skein-worker-1.0.0')
  })
})

describe('an upgrade that is killed', () => {
  test.each(['verify', 'unpack', 'switch', 'restart'])('in the phase %s leaves a worker that starts', async (phase) => {
    await install()
    await machine.runUntil(`${phase} `, 'skein-worker', 'upgrade', versions.two)
    // As after a power cut.
    await machine.run('systemctl', 'stop')
    const before = manager.registrations.length
    expect((await machine.run('systemctl', 'start')).code).toBe(0)
    await until(() => manager.registrations.length > before, 'a worker joins')
    expect(`skein-worker-${joined()}`).toBe(machine.current)
    const { code } = await machine.run('skein-worker', 'upgrade', versions.two)
    expect([code, machine.current, joined()]).toEqual([0, 'skein-worker-1.1.0', '1.1.0'])
    expect(readdirSync(join(machine.folder, 'opt/skein-worker')).filter((name) => /trial|new|back/.test(name))).toEqual(
      [],
    )
  })

  test('after the switch to a version that does not start: the second start uses the version before', async () => {
    await install()
    await machine.runUntil('restart ', 'skein-worker', 'upgrade', versions.crashes)
    await machine.run('systemctl', 'stop')
    expect((await machine.run('systemctl', 'start')).code).toBe(1)
    expect(machine.current).toBe('skein-worker-1.2.0')
    const before = manager.registrations.length
    expect((await machine.run('systemctl', 'start')).code).toBe(0)
    await until(() => manager.registrations.length > before, 'the version before joins')
    expect([machine.current, joined()]).toEqual(['skein-worker-1.0.0', '1.0.0'])
  })
})

test('a worker that runs without an upgrade starts without a manager', async () => {
  await install()
  await manager[Symbol.asyncDispose]()
  expect((await machine.run('systemctl', 'restart')).code).toBe(0)
  expect(existsSync(`/proc/${machine.pid}`)).toBe(true)
  manager = await ScriptedManager.start()
})
