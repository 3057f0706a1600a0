// The systemd units of deploy/systemd, as systemd's own tools judge them. That they start is not tested: it needs a systemd of its own.
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readConfigs, unknownVariables, variablesOf } from '#core/config/index.ts'
import { PROGRAM_SETTINGS } from '../../tools/generate/index.ts'
import { packageUnitOf, unitOf } from '#worker/installation/unit.ts'
import { ROOT } from './deployment-files.ts'

const FOLDER = join(ROOT, 'deploy/systemd')
/** Unit -> the program that it runs, and what its exposure must stay below, in tenths of systemd's number. */
const UNITS: Readonly<Record<string, { program: string; maxExposure: number }>> = {
  'skein-api.service': { program: 'api', maxExposure: 20 },
  'skein-manager.service': { program: 'manager', maxExposure: 20 },
  'skein-proxy.service': { program: 'proxy', maxExposure: 20 },
  // bubblewrap needs namespaces and mounts.
  'skein-worker.service': { program: 'worker', maxExposure: 30 },
  'skein.service': { program: 'all', maxExposure: 30 },
}

/** Where there is none, tests that need it say so; a run that sets CI=true must have it. */
function hasSystemd(): boolean {
  try {
    execFileSync('systemd-analyze', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    if (process.env['CI'] === 'true') throw new Error('systemd-analyze is not installed: apt-get install systemd')
    return false
  }
}

const textOf = (unit: string) => readFileSync(join(FOLDER, unit), 'utf8')
/** Values of a directive, in order. */
const valuesOf = (unit: string, name: string) =>
  [...textOf(unit).matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value = '']) => value)
const environmentOf = (unit: string) =>
  Object.fromEntries(valuesOf(unit, 'Environment').map((pair) => pair.split(/=(.*)/s).slice(0, 2) as [string, string]))

describe('deploy/systemd', () => {
  it('has a unit for each program, their user, and what an installed worker runs around its start', () => {
    expect(readdirSync(FOLDER).toSorted()).toEqual(
      [...Object.keys(UNITS), 'skein.sysusers.conf', 'guard-upgrade.sh'].toSorted(),
    )
  })

  it('an installed worker has the unit without a wait for a manager, and with its own settings', () => {
    const template = textOf('skein-worker.service')
    for (const unit of [unitOf(template), packageUnitOf(template, '/usr/lib/skein-worker')]) {
      expect(unit).not.toMatch(/health\.mjs|WorkingDirectory|\/opt\/skein\/bin/)
      expect(unit).toMatch(/^EnvironmentFile=-\/etc\/skein\/skein-worker\.env$/m)
      expect(unit.match(/^ExecStart=.*$/gm)).toHaveLength(1)
      // All restrictions are those of the unit of deploy/systemd.
      const restrictions = /^(Protect|Restrict|Private|System|NoNew|Capability|Lock|Remove|Load|State|Kill)\w+=.*$/gm
      expect(unit.match(restrictions)).toEqual(template.match(restrictions))
    }
    expect(unitOf(template)).toMatch(/^ExecStartPre=\+\/opt\/skein-worker\/guard-upgrade before$/m)
  })

  it.each(Object.entries(UNITS))('%s starts its program with existing settings', (unit, { program }) => {
    expect(valuesOf(unit, 'ExecStart')[0]).toMatch(new RegExp(`^/opt/skein/bin/node .*dist/${program}\\.js$`))
    const environment = environmentOf(unit)
    const settings = PROGRAM_SETTINGS[program === 'all' ? 'start' : program] ?? []
    expect(unknownVariables(settings, environment, ['SKEIN_', 'PROXY_'])).toEqual([])
    const plain = Object.fromEntries(Object.entries(environment).filter(([name]) => !name.endsWith('_FILE')))
    expect(() => readConfigs(Object.fromEntries(settings.entries()), plain)).not.toThrow()
    expect(plain['SKEIN_DATA_DIR']).toBe(`/var/lib/${valuesOf(unit, 'StateDirectory')[0]}`)
  })

  it.each(Object.entries(UNITS))('secrets of %s are credentials, never values', (unit, { program }) => {
    const environment = environmentOf(unit)
    const settings = (PROGRAM_SETTINGS[program === 'all' ? 'start' : program] ?? []).flatMap((one) =>
      Object.values(one),
    )
    for (const setting of settings.filter(({ isSecret }) => isSecret)) {
      const [name = '', ...others] = variablesOf(setting)
      expect(environment, unit).not.toHaveProperty(name)
      const path = environment[others.at(-1) ?? '']
      if (path === undefined) continue
      const credential = path.replace('%d/', '')
      expect(valuesOf(unit, 'LoadCredential')).toContain(`${credential}:/etc/skein/credentials/${credential}`)
    }
    expect(textOf(unit)).not.toMatch(/--token\b/)
  })

  it('each unit waits for readiness, outlasts a stop of the program, and runs as a user without rights', () => {
    for (const unit of Object.keys(UNITS)) {
      expect(valuesOf(unit, 'ExecStartPost')[0]).toMatch(
        /^\/opt\/skein\/bin\/node deploy\/health\.mjs --wait=120 (ready|worker) /,
      )
      expect(Number(valuesOf(unit, 'TimeoutStopSec')[0])).toBeGreaterThan(25)
      expect(valuesOf(unit, 'User')).toEqual(['skein'])
      expect(valuesOf(unit, 'NoNewPrivileges')).toEqual(['yes'])
      expect(valuesOf(unit, 'ProtectSystem')).toEqual(['strict'])
      expect(valuesOf(unit, 'CapabilityBoundingSet')).toEqual([''])
    }
  })
})

describe.runIf(hasSystemd())('systemd-analyze', () => {
  let folder: string
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'skein-units-'))
    // Programs must exist: this Node stands for the one of an installation.
    for (const unit of Object.keys(UNITS))
      writeFileSync(join(folder, unit), textOf(unit).replaceAll('/opt/skein/bin/node', process.execPath))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  const analyze = async (...args: string[]): Promise<{ code: number; output: string }> =>
    await promisify(execFile)('systemd-analyze', args).then(
      ({ stdout, stderr }) => ({ code: 0, output: `${stdout}${stderr}` }),
      (error: { code: number; stdout: string; stderr: string }) => ({
        code: error.code,
        output: `${error.stdout}${error.stderr}`,
      }),
    )

  it.each(Object.keys(UNITS))('finds nothing wrong in %s', async (unit) => {
    const { code, output } = await analyze('verify', '--man=no', join(folder, unit))
    expect({ code, output: output.split('\n').filter((line) => line.includes(unit)) }).toEqual({ code: 0, output: [] })
  })

  it('finds nothing wrong in the unit of an installed worker', async () => {
    const unit = join(folder, 'edge', 'skein-worker.service')
    mkdirSync(join(folder, 'edge'))
    const text = unitOf(textOf('skein-worker.service')).replaceAll(
      /\/opt\/skein-worker\/(current\/run|guard-upgrade)/g,
      process.execPath,
    )
    writeFileSync(unit, text)
    const { code, output } = await analyze('verify', '--man=no', unit)
    expect({ code, output: output.split('\n').filter((line) => line.includes('skein-worker')) }).toEqual({
      code: 0,
      output: [],
    })
    expect((await analyze('security', '--offline=true', '--no-pager', '--threshold=30', unit)).code).toBe(0)
  })

  it.each(Object.entries(UNITS))('%s is not exposed more than necessary', async (unit, { maxExposure }) => {
    const judge = (threshold: number) =>
      analyze('security', '--offline=true', '--no-pager', `--threshold=${threshold}`, join(folder, unit))
    const { code, output } = await judge(maxExposure)
    expect(code, output.split('\n').slice(-3).join('\n')).toBe(0)
    // The threshold is one that is looked at.
    expect((await judge(1)).code).not.toBe(0)
  })
})
