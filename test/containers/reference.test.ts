/**
 * The reference deployment, run: docker-compose.yml and deploy/ with the image of the Dockerfile, under Docker's seccomp profile. Where no
 * engine can run, all of it is skipped. `npm run containers` prepares it (run.sh).
 */
import { execFile } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import mqtt from 'mqtt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Domain } from '../faults/losses.ts'
import { ROOT, programOf, readCompose } from '../programs/deployment-files.ts'
import { Deployment, reasonAgainst } from './engine.ts'
import { BASE, HOST, TASKS, Traffic, call, callAt, enter } from './traffic.ts'

const run = promisify(execFile)
const MAX_IMAGE_BYTES = 300_000_000
const START_DEADLINE_MS = 300_000
/** Bits of a set of capabilities. */
const CAPABILITIES: Readonly<Record<string, bigint>> = { KILL: 5n, SETGID: 6n, SETUID: 7n, NET_BIND_SERVICE: 10n }

const compose = readCompose()
const services = Object.keys(compose.services)
const ours = services.filter((name) => programOf(compose.services[name] as never) !== undefined)
const others = services.filter((name) => !ours.includes(name))
const reason = reasonAgainst()

/** The first process of the container, as the kernel shows it on this side. */
const processFile = (pid: number, file: string) => readFileSync(`/proc/${pid}/${file}`, 'utf8')
const statusOf = (pid: number) =>
  Object.fromEntries(
    processFile(pid, 'status')
      .split('\n')
      .map((line) => line.split(':\t') as [string, string]),
  )

describe.skipIf(reason !== undefined)(
  `the reference deployment in containers${reason === undefined ? '' : ` (${reason})`}`,
  () => {
    let deployment: Deployment
    let domain: Domain
    let edgeCertificate: string
    let authority: string
    const secretOf = (name: string) => deployment.prepared.variables[name] ?? ''

    beforeAll(async () => {
      deployment = await Deployment.start(HOST, services)
      ;({ domain, edgeCertificate, authority } = await enter(deployment))
    }, START_DEADLINE_MS)
    afterAll(async () => {
      await (deployment as Deployment | undefined)?.[Symbol.asyncDispose]()
    }, START_DEADLINE_MS)

    test('the image is small, and has the bundles and nothing that built them', async () => {
      const { stdout } = await run('podman', ['image', 'inspect', '--format', '{{.Size}} {{.User}}', 'skein'])
      const [bytes = '', user] = stdout.trim().split(' ')
      process.stdout.write(
        `the image has ${(Number(bytes) / 1e6).toFixed(0)} MB; all containers were healthy after ${(deployment.startedInMs / 1000).toFixed(0)} s\n`,
      )
      expect(Number(bytes)).toBeLessThan(MAX_IMAGE_BYTES)
      expect(user).toBe('skein')
      expect((await deployment.exec('api-1', 'ls', '-A', '/opt/skein')).split('\n')).toEqual([
        'LICENSE',
        'deploy',
        'dist',
        '',
      ])
      expect(await deployment.exec('api-1', 'ls', '-A', '/opt/skein/deploy')).toBe('health.mjs\n')
    })

    test.each(services)('%s has a read-only root, its limits, and no rights but those that it needs', async (name) => {
      const service = compose.services[name]
      const { State: state, HostConfig: limits, RestartCount: restarts } = await deployment.inspect(name)
      expect(restarts, 'restarts').toBe(0)
      const mounts = processFile(state.Pid, 'mountinfo').split('\n')
      const root = mounts.map((line) => line.split(' ')).find(([, , , , path]) => path === '/')
      expect(root?.[5]).toMatch(/^ro\b/)
      const { CapEff, CapBnd, NoNewPrivs, Seccomp } = statusOf(state.Pid)
      const granted = (service?.cap_add ?? []).reduce((sum, one) => sum | (1n << (CAPABILITIES[one] as bigint)), 0n)
      expect(BigInt(`0x${CapBnd}`)).toBe(granted)
      // Those of a user other than root are never in effect.
      expect([0n, granted]).toContain(BigInt(`0x${CapEff}`))
      expect({ NoNewPrivs, Seccomp }).toEqual({ NoNewPrivs: '1', Seccomp: '2' })
      expect(limits.Memory).toBeGreaterThan(0)
      expect(limits.NanoCpus).toBe((service?.cpus ?? 0) * 1e9)
      expect(limits.PidsLimit).toBe(service?.pids_limit)
    })

    test('workers and databases reach nothing outside of their networks', async () => {
      const hasWayOut = async (name: string) => {
        const { Pid: pid } = (await deployment.inspect(name)).State
        return processFile(pid, 'net/route')
          .split('\n')
          .some((line) => line.split('\t')[1] === '00000000')
      }
      const withWay: string[] = []
      for (const name of services) if (await hasWayOut(name)) withWay.push(name)
      expect(withWay.toSorted()).toEqual(['api-1', 'api-2', 'edge', 'manager-1', 'manager-2', 'mqtt', 'proxy'])
      const knows = async (name: string, other: string) =>
        await deployment.exec(name, 'getent', 'hosts', other).then(
          () => true,
          () => false,
        )
      expect(await knows('worker-1', 'manager-2')).toBe(true)
      expect(await knows('api-1', 'postgres')).toBe(true)
      for (const name of ['worker-1', 'proxy', 'edge', 'mqtt']) expect(await knows(name, 'postgres'), name).toBe(false)
    })

    test('the guests of a worker have users of their own, and Docker refuses namespaces to it', async () => {
      const { workers } = (await callAt(`${TASKS}/workers`, 'GET', domain)).json<{
        workers: { name: string; isolation: string }[]
      }>()
      expect(workers.map(({ name, isolation }) => `${name} ${isolation}`).toSorted()).toEqual([
        'worker-1 uid',
        'worker-2 uid',
      ])
      await expect(deployment.exec('worker-1', 'unshare', '--user', 'true')).rejects.toThrow(/Operation not permitted/)
    })

    test('the tour through the reverse proxy over TLS runs to its end', async () => {
      const { stdout } = await run(process.execPath, ['tools/tour.ts'], {
        cwd: ROOT,
        env: {
          PATH: process.env['PATH'],
          SKEIN_URL: BASE,
          SKEIN_MANAGER_URL: TASKS,
          NODE_EXTRA_CA_CERTS: edgeCertificate,
        },
      })
      expect(stdout).toContain('20 + 22 = 42')
      expect((await call('GET', '/metrics')).status).toBe(404)
    })

    test('a device over MQTT and TLS is seen with its own address, and its message is read over HTTP', async () => {
      const device = await domain.create<{ id: string; credentials: { secret: string } }>(`/${domain.id}/clients`, {
        name: 'device',
      })
      const channel = await domain.create<{ id: string }>(`/${domain.id}/channels`, { name: 'device' })
      const types = ['publish', 'subscribe']
      await domain.create(`/${domain.id}/channels/connect`, {
        client_ids: [device.id],
        channel_ids: [channel.id],
        types,
      })
      const path = `m/${domain.id}/c/${channel.id}`
      const client = await mqtt.connectAsync(`mqtts://${HOST}:8883`, {
        ca: authority,
        clientId: 'device',
        username: device.id,
        password: device.credentials.secret,
        reconnectPeriod: 0,
      })
      try {
        await client.publishAsync(path, '[{"n":"level","v":7}]', { qos: 1 })
        const { sessions } = (await call('GET', `/${domain.id}/clients/${device.id}/sessions`, domain)).json<{
          sessions: { address: string }[]
        }>()
        // Of the engine, which forwards the port: neither that of the load balancer nor an unknown one.
        expect(sessions).toMatchObject([{ client_identifier: 'device', address: '172.30.77.1' }])
        const read = await call('GET', `/${path}?limit=1`, domain)
        expect(read.json<{ messages: object[] }>().messages).toMatchObject([{ name: 'level', value: 7 }])
      } finally {
        client.end(true)
      }
    })

    test('a secret is in the containers that need it alone, on no command line and in no log', async () => {
      const environments = new Map<string, string>()
      const logs = new Map<string, string>()
      for (const name of services) {
        environments.set(name, (await deployment.inspect(name)).Config.Env.join('\n'))
        logs.set(name, await deployment.log(name))
      }
      const nodes = ['api-1', 'api-2', 'manager-1', 'manager-2']
      const holders: Record<string, string[]> = {
        POSTGRES_PASSWORD: ['postgres', ...nodes],
        REDIS_PASSWORD: ['redis', ...nodes],
        SKEIN_SECRET_KEY: nodes,
        SKEIN_ADMIN_SECRET: nodes,
        SKEIN_WORKER_TOKEN: ['manager-1', 'manager-2', 'worker-1', 'worker-2'],
        SKEIN_PROXY_TOKEN: ['manager-1', 'manager-2', 'proxy'],
      }
      const commandLines = readdirSync('/proc')
        .filter((name) => /^\d+$/.test(name))
        .flatMap((pid) => {
          try {
            return [processFile(Number(pid), 'cmdline')]
          } catch {
            return []
          }
        })
      expect(commandLines.length).toBeGreaterThan(services.length)
      const found = (texts: Map<string, string>, secret: string) =>
        [...texts].filter(([, text]) => text.includes(secret)).map(([name]) => name)
      for (const [variable, names] of Object.entries(holders)) {
        const secret = secretOf(variable)
        expect(secret.length, variable).toBeGreaterThan(30)
        expect(found(environments, secret).toSorted(), variable).toEqual(names.toSorted())
        expect(found(logs, secret), variable).toEqual([])
        expect(
          commandLines.filter((line) => line.includes(secret)),
          variable,
        ).toEqual([])
      }
      for (const name of ours) expect(logs.get(name), name).not.toBe('')
    })

    test('a backup is made in a container, and is copied out of it', async () => {
      await deployment.compose('exec', '-T', 'api-1', 'node', 'dist/backup.js', '/data/skein.tar')
      const file = join(deployment.prepared.folder, 'skein.tar')
      const { Name: name } = await deployment.inspect('api-1')
      await run('podman', ['cp', `${name.replace('/', '')}:/data/skein.tar`, file])
      expect(readFileSync(file).length).toBeGreaterThan(10_000)
    })

    describe('with traffic', () => {
      let traffic: Traffic
      beforeAll(async () => {
        traffic = await Traffic.begin(domain, authority)
      }, START_DEADLINE_MS)
      afterAll(async () => {
        await (traffic as Traffic | undefined)?.[Symbol.asyncDispose]()
      }, START_DEADLINE_MS)

      test.each(ours)('%s is replaced by a new container', async (name) => {
        const before = await deployment.inspect(name)
        const since = performance.now()
        await deployment.replace(name)
        await deployment.untilHealthy(name)
        const healthyMs = performance.now() - since
        expect((await deployment.inspect(name)).Id).not.toBe(before.Id)
        const flowsMs = await traffic.flows(`after ${name} was replaced`)
        process.stdout.write(
          `${name} replaced in ${(healthyMs / 1000).toFixed(1)} s, traffic after ${flowsMs.toFixed(0)} ms\n`,
        )
      })

      test.each([...ours, ...others])('%s is killed, and the engine starts it again', async (name) => {
        const { RestartCount: restarts } = await deployment.inspect(name)
        const since = performance.now()
        await deployment.kill(name)
        await deployment.untilHealthy(name)
        const healthyMs = performance.now() - since
        expect((await deployment.inspect(name)).RestartCount).toBeGreaterThan(restarts)
        const flowsMs = await traffic.flows(`after ${name} was killed`)
        process.stdout.write(
          `${name} healthy ${(healthyMs / 1000).toFixed(1)} s after its kill, traffic after ${flowsMs.toFixed(0)} ms\n`,
        )
      })

      test('nothing that was acknowledged is lost, and every task has its right result', async () => {
        await traffic.check('after all of it')
      })
    })
  },
)
