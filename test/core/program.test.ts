/** The frame of every program as a process: arguments, settings, signals, exit codes (contract section 15). */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { until } from '../harness/until.ts'

function run(args: string[] = [], environment: Record<string, string> = {}) {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'a-program.ts'), ...args], {
    env: { ...COMPILE_CACHE, PATH: process.env['PATH'], ...environment },
  })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString()
  })
  const ended = new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) =>
    child.on('close', (code) => resolve({ code, stdout, stderr })),
  )
  return { child, ended, up: () => until(() => stdout.includes('"up"'), 'the program is up') }
}

test('--help shows the purpose, the flags and the settings with their defaults, and exits with 0', async () => {
  for (const flag of ['--help', '-h']) {
    const { code, stdout } = await run([flag], { SKEIN_EXAMPLE_PORT: 'wrong' }).ended
    expect(code).toBe(0)
    expect(stdout).toContain('Usage: npm run example -- [flags]\n\nDoes what its settings say.')
    expect(stdout).toMatch(/--mode VALUE +sets SKEIN_EXAMPLE_MODE/)
    expect(stdout).toMatch(/SKEIN_EXAMPLE_COUNT +A number \(default: 1\)/)
  }
})

test.each([['--nonsense'], ['positional'], ['--mode'], ['--open=yes']])(
  '%s is wrong usage: one line and exit code 2',
  async (...args) => {
    const { code, stderr, stdout } = await run(args).ended
    expect(code).toBe(2)
    expect(stderr.trim().split('\n')).toHaveLength(1)
    expect(stderr).toContain('see --help')
    expect(stdout).toBe('')
  },
)

test('all invalid settings are reported together, one line each, without a secret, and the exit code is 1', async () => {
  const { code, stderr, stdout } = await run([], {
    SKEIN_EXAMPLE_PORT: '99999',
    SKEIN_EXAMPLE_COUNT: 'many\nlines',
    SKEIN_EXAMPLE_OPEN: 'perhaps',
    SKEIN_EXAMPLE_TOKEN: 'hunter2',
  }).ended
  expect(code).toBe(1)
  expect(stderr.trim().split('\n')).toEqual([
    'SKEIN_EXAMPLE_PORT must be a whole number from 0 to 65535, not "99999"',
    'SKEIN_EXAMPLE_COUNT must be a whole number from 1 to 9, not "many\\nlines"',
    'SKEIN_EXAMPLE_OPEN must be true or false, not "perhaps"',
  ])
  expect(stdout + stderr).not.toContain('hunter2')
})

test('a flag overrides its setting; a misspelt variable is a warning with the right name', async () => {
  const program = run(['--mode', 'fail'], {
    SKEIN_EXAMPLE_MODE: 'wait',
    SKEIN_EXAMPLE_CUONT: '3',
    SKEIN_EXAMPLE_NEIGHBOUR: 'of another program',
    SKEIN_EXAMPLE_TOKEN: 'hunter2',
  })
  const { code, stdout, stderr } = await program.ended
  expect(code).toBe(1)
  expect(stderr).toBe('nothing works\n')
  expect(stdout).toContain('SKEIN_EXAMPLE_CUONT is not a setting; did you mean SKEIN_EXAMPLE_COUNT?')
  expect(stdout).not.toContain('NEIGHBOUR')
  expect(stdout).toContain('part stopped')
  expect(stdout).not.toContain('hunter2')
})

test.each(['SIGTERM', 'SIGINT'] as const)('%s stops the parts and exits with 0', async (signal) => {
  const program = run()
  await program.up()
  program.child.kill(signal)
  const { code, stdout, stderr } = await program.ended
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).toContain('part stopped')
})

test('a closed output loses only its lines', async () => {
  const program = run(['--mode', 'talk'])
  await program.up()
  let dots = 0
  program.child.stderr.on('data', (chunk: Buffer) => {
    dots += chunk.length
  })
  program.child.stdout.destroy()
  const before = dots
  await until(() => dots > before + 20, 'the program goes on')
  program.child.kill('SIGTERM')
  const { code, stderr } = await program.ended
  expect(code).toBe(0)
  expect(stderr).toMatch(/^\.+$/)
})

test('a signal that npm passes on right after that of the terminal is the same request', async () => {
  const program = run()
  await program.up()
  // Two names, because the kernel may deliver two equal signals as one.
  program.child.kill('SIGINT')
  program.child.kill('SIGTERM')
  const { code, stdout } = await program.ended
  expect(code).toBe(0)
  expect(stdout).toContain('part stopped')
})

test('a second signal later ends the process at once, whatever still hangs', async () => {
  const program = run(['--mode', 'hang'])
  await program.up()
  program.child.kill('SIGTERM')
  await until(
    () => program.child.exitCode !== null || program.child.kill('SIGTERM') === false || undefined,
    'the process ends',
  )
  expect((await program.ended).code).toBe(1)
})

test('a signal during the start ends it too, also when the start hangs', async () => {
  const program = run(['--mode', 'stuck'])
  await program.up()
  program.child.kill('SIGTERM')
  const { code, stdout } = await program.ended
  expect(code).toBe(0)
  expect(stdout).toContain('part stopped')
})

test('an unhandled rejection stops the program with one line and exit code 1', async () => {
  const { code, stdout, stderr } = await run(['--mode', 'die']).ended
  expect(code).toBe(1)
  expect(stderr).toBe('a promise nobody waited for\n')
  expect(stdout).toContain('part stopped')
})
