// deploy/kubernetes: the overlays as kubectl builds them, against the schemas of the API and the settings of the programs.
// What needs a cluster is not tested.
import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readConfigs, unknownVariables } from '#core/config/index.ts'
import { parseDurationMs } from '#core/time.ts'
import { PROGRAM_SETTINGS } from '../../tools/generate/index.ts'
import { buildOverlay, builder, faultsOf, prepareSecrets, readSecret } from './kubernetes-files.ts'
import type { Container, Pod, Resource, Secrets } from './kubernetes-files.ts'
import { ROOT } from './monitoring-files.ts'

/** The time in which a program stops after SKEIN_STOP_DELAY or SKEIN_WORKER_DRAIN. */
const STOP_SECONDS = 22
const OVERLAYS = ['small', 'ha']
/** Secrets that the operator of the database, cert-manager or a person makes. */
const DATABASE_SECRET = { name: 'skein-database-app', keys: ['uri'] }

it.runIf(process.env['CI'] === 'true')('kubectl or kustomize is installed where tests decide', () => {
  expect(builder).toBeDefined()
})

describe.skipIf(builder === undefined)('prepare.sh for Kubernetes', () => {
  it('makes other secrets each time, which only their owner reads, and overwrites none', () => {
    using first = prepareSecrets('skein.example.com')
    using second = prepareSecrets('skein.example.com')
    for (const key of first.keys) {
      expect(readSecret(first, key).length, key).toBeGreaterThanOrEqual(32)
      expect(readSecret(first, key), key).not.toBe(readSecret(second, key))
      expect(statSync(join(first.folder, 'skein', key)).mode & 0o077).toBe(0)
    }
  })
})

describe.skipIf(builder === undefined).each(OVERLAYS)('the overlay %s (needs kubectl)', (overlay) => {
  let resources: Resource[]
  let secrets: Secrets
  let folder: string
  beforeAll(() => {
    resources = buildOverlay(overlay)
    secrets = prepareSecrets('skein.example.com')
    folder = mkdtempSync(join(tmpdir(), 'skein-kubernetes-'))
  })
  afterAll(() => {
    secrets[Symbol.dispose]()
    rmSync(folder, { recursive: true })
  })

  const ofKind = (kind: string) => resources.filter((resource) => resource.kind === kind)
  const podOf = (resource: Resource) => (resource['spec'] as { template: { spec: Pod } }).template.spec
  const labelsOf = (resource: Resource) =>
    (resource['spec'] as { template: { metadata: { labels: Labels } } }).template.metadata.labels
  const workloads = () => resources.filter(({ kind }) => ['Deployment', 'StatefulSet'].includes(kind))
  const programOf = ({ command }: Container) => /^dist\/(\w+)\.js$/.exec(command[1] ?? '')?.[1]
  /** The workloads of our own programs. */
  const ours = () =>
    workloads().flatMap((resource) => {
      const pod = podOf(resource)
      const [container] = pod.containers
      const program = container === undefined ? undefined : programOf(container)
      return container === undefined || program === undefined ? [] : [{ resource, pod, container, program }]
    })
  const defaultOf = (program: string, setting: string) =>
    Number(
      (PROGRAM_SETTINGS[program] ?? []).flatMap((group) => Object.values(group)).find(({ name }) => name === setting)
        ?.defaultText,
    )

  it('is what the schemas of the Kubernetes API and of CloudNativePG accept, with no field that they do not know', async () => {
    expect(resources.length).toBeGreaterThan(20)
    for (const resource of resources)
      expect(await faultsOf(resource), `${resource.kind} ${resource.metadata.name}`).toEqual([])
  })

  it('runs every program of the platform', () => {
    expect(
      ours()
        .map(({ program }) => program)
        .toSorted(),
    ).toEqual(['api', 'manager', 'proxy', 'worker'])
    for (const resource of resources.filter(({ kind }) => kind !== 'Namespace'))
      expect(resource.metadata.namespace, `${resource.kind} ${resource.metadata.name}`).toBe('skein')
  })

  it('every variable is a setting of its program, and has a value that it takes', () => {
    for (const { container, program, pod } of ours()) {
      const settings = PROGRAM_SETTINGS[program] ?? []
      const names = ofKind('ConfigMap').filter(({ metadata }) =>
        container.envFrom?.some(({ configMapRef }) => configMapRef.name === metadata.name),
      )
      expect(names.length).toBe(container.envFrom?.length ?? 0)
      const shared = Object.assign({}, ...names.map((resource) => resource['data'])) as Record<string, string>
      const own = Object.fromEntries((container.env ?? []).map(({ name, value = 'worker-0' }) => [name, value]))
      const environment: Record<string, string> = { SKEIN_DATA_DIR: '/data', SKEIN_HOST: '0.0.0.0', ...shared, ...own }
      expect(unknownVariables(settings, environment, ['SKEIN_', 'PROXY_', 'OTEL_']), program).toEqual([])
      expect(Object.keys(environment).filter((name) => !/^(SKEIN|PROXY)_/.test(name))).toEqual([])
      // A secret is in a file that is mounted, and its Secret is one that is made.
      for (const [name, path] of Object.entries(environment)) {
        if (!name.endsWith('_FILE')) continue
        const { secretName, key } = mounted(pod, container, path)
        const file = join(folder, `${program}-${key}`)
        const isDatabase = secretName === DATABASE_SECRET.name
        if (isDatabase) expect(DATABASE_SECRET.keys).toContain(key)
        else
          expect({ secretName, keys: secrets.keys }).toEqual({
            secretName: 'skein',
            keys: expect.arrayContaining([key]),
          })
        writeFileSync(
          file,
          isDatabase ? 'postgresql://skein:secret@skein-database-rw.skein:5432/skein' : readSecret(secrets, key),
        )
        environment[name] = file
      }
      expect(() => readConfigs(Object.fromEntries(settings.entries()), environment), program).not.toThrow()
      const open = Object.keys(environment).filter((name) =>
        /(_SECRET|_TOKEN|_SECRET_KEY|DATABASE_URL|REDIS_URL)$/.test(name),
      )
      expect(open, `${program} has a secret in its environment`).toEqual([])
    }
  })

  /** The Secret and the key that a file of a container shows. */
  function mounted(pod: Pod, container: Container, path: string) {
    const mount = container.volumeMounts.find(({ mountPath }) => path.startsWith(`${mountPath}/`))
    const secret = pod.volumes.find(({ name }) => name === mount?.name)?.secret
    const file = path.slice((mount?.mountPath.length ?? 0) + 1)
    const key = secret?.items === undefined ? file : secret.items.find((item) => item.path === file)?.key
    if (secret === undefined || key === undefined) throw new Error(`${path} is not mounted`)
    return { secretName: secret.secretName, key }
  }

  it('certificates are mounted where the settings say, and a worker does not get the key', () => {
    for (const { container, program, pod } of ours()) {
      for (const { name, value = '' } of container.env ?? []) {
        if (!name.startsWith('SKEIN_GRPC_TLS_')) continue
        expect(mounted(pod, container, value), name).toEqual({
          secretName: 'skein-cluster',
          key: name.endsWith('_KEY') ? 'tls.key' : 'tls.crt',
        })
      }
      if (program === 'worker')
        expect(pod.volumes.flatMap(({ secret }) => secret?.items?.map(({ key }) => key) ?? [])).toEqual([
          'worker-token',
          'tls.crt',
        ])
    }
  })

  it('the certificate of managers and proxy has the names by which they are reached', () => {
    const certificate = new X509Certificate(readFileSync(join(secrets.folder, 'cluster.pem')))
    const addresses = ours().flatMap(({ container }) =>
      (container.env ?? [])
        .filter(({ name }) => ['SKEIN_WORKER_MANAGER', 'SKEIN_PROXY_ADDRESS'].includes(name))
        .map(({ value = '' }) => value),
    )
    expect(addresses.toSorted()).toEqual(['managers:7071', 'proxy:7072'])
    for (const address of addresses) {
      const [name = '', port] = address.split(':')
      expect(certificate.checkHost(name)).toBe(name)
      const service = ofKind('Service').find(({ metadata }) => metadata.name === name)
      expect((service?.['spec'] as ServiceSpec | undefined)?.ports?.map((one) => String(one.port))).toEqual([port])
    }
  })

  it('every port is that of a setting, and Services and probes lead to ports that exist', () => {
    const expected: Record<string, Record<string, number>> = {
      api: {
        http: defaultOf('api', 'SKEIN_HTTP_PORT'),
        mqtt: defaultOf('api', 'SKEIN_MQTT_PORT'),
        mqtts: defaultOf('api', 'SKEIN_MQTTS_PORT'),
        coap: defaultOf('api', 'SKEIN_COAP_PORT'),
      },
      manager: {
        http: defaultOf('manager', 'SKEIN_MANAGER_HTTP_PORT'),
        grpc: defaultOf('manager', 'SKEIN_MANAGER_GRPC_PORT'),
      },
      proxy: { https: defaultOf('proxy', 'SKEIN_PROXY_PORT') },
      worker: {},
    }
    for (const { container, program } of ours()) {
      const ports = container.ports ?? []
      expect(Object.fromEntries(ports.map(({ name, containerPort }) => [name, containerPort]))).toEqual(
        expected[program],
      )
      for (const probe of [container.readinessProbe, container.livenessProbe]) {
        if (probe?.httpGet !== undefined) {
          expect(ports.map(({ name }) => name)).toContain(probe.httpGet.port)
          expect(probe.httpGet.scheme ?? 'HTTP').toBe(program === 'proxy' ? 'HTTPS' : 'HTTP')
        }
      }
      if (program === 'worker')
        expect(container.readinessProbe?.exec?.command.slice(1, 3)).toEqual(['deploy/health.mjs', 'worker'])
      else {
        expect(container.readinessProbe?.httpGet?.path).toBe('/ready')
        expect(container.livenessProbe?.httpGet?.path).toBe('/health')
      }
    }
    for (const service of ofKind('Service')) {
      const { selector, ports = [] } = service['spec'] as ServiceSpec
      if (selector === undefined) continue
      const target = workloads().find((resource) => matches(selector, labelsOf(resource)))
      const open = target === undefined ? [] : (podOf(target).containers[0]?.ports ?? [])
      for (const { port, targetPort, protocol = 'TCP' } of ports)
        expect(open, service.metadata.name).toContainEqual(
          expect.objectContaining({
            name: targetPort,
            containerPort: port,
            ...(protocol === 'TCP' ? {} : { protocol }),
          }),
        )
      expect(target, service.metadata.name).toBeDefined()
    }
  })

  it('a device of CoAP stays with one pod, and load balancers keep the address of the device', () => {
    const services = new Map(ofKind('Service').map((one) => [one.metadata.name, one['spec'] as ServiceSpec]))
    expect(services.get('coap')).toMatchObject({
      type: 'LoadBalancer',
      sessionAffinity: 'ClientIP',
      externalTrafficPolicy: 'Local',
    })
    expect(services.get('mqtt')).toMatchObject({ type: 'LoadBalancer', externalTrafficPolicy: 'Local' })
    const outside = [...services]
      .filter(([, { type }]) => type !== undefined && type !== 'ClusterIP')
      .map(([name]) => name)
    expect(outside.toSorted()).toEqual(['coap', 'mqtt'])
  })

  it('HTTP is led as by the Caddyfile of the reference deployment', () => {
    const text = readFileSync(join(ROOT, 'deploy/Caddyfile'), 'utf8')
    const paths = /^\t@tasks path (.*)$/m.exec(text)?.[1]?.split(' ') ?? []
    const [ingress] = ofKind('Ingress')
    const rules = ((ingress?.['spec'] as IngressSpec | undefined)?.rules ?? []).flatMap(({ http }) => http.paths)
    const led = rules
      .filter(({ backend }) => backend.service.name === 'manager')
      .map(({ path, pathType }) => `${path} ${pathType}`)
    const wanted = paths.flatMap((path) =>
      path.endsWith('/*') ? [`${path.slice(0, -2)} Prefix`] : paths.includes(`${path}/*`) ? [] : [`${path} Exact`],
    )
    expect(led.toSorted()).toEqual(wanted.toSorted())
    const others = rules.filter(({ backend }) => backend.service.name !== 'manager')
    expect(others.map(({ path, backend }) => `${path} ${backend.service.name}`)).toEqual(['/ api', '/metrics closed'])
  })

  it('pods have a read-only root, no rights to spare, limits, and time to stop', () => {
    for (const resource of workloads()) {
      const pod = podOf(resource)
      const [container] = pod.containers as [Container]
      const isWorker = programOf(container) === 'worker'
      expect(container.securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'], ...(isWorker ? { add: ['SETUID', 'SETGID', 'KILL'] } : {}) },
      })
      expect(pod.securityContext.seccompProfile.type).toBe('RuntimeDefault')
      expect(pod.securityContext.runAsNonRoot ?? false).toBe(!isWorker)
      expect(pod.automountServiceAccountToken).toBe(false)
      // Otherwise the Service `proxy` puts PROXY_PORT into every environment.
      expect(pod.enableServiceLinks).toBe(false)
      expect(container.resources.limits['memory']).toMatch(/^\d+[MG]i$/)
      expect(container.resources.requests['cpu']).toBeDefined()
      const delay = container.env?.find(({ name }) => ['SKEIN_STOP_DELAY', 'SKEIN_WORKER_DRAIN'].includes(name))?.value
      if (delay !== undefined)
        expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(parseDurationMs(delay) / 1000 + STOP_SECONDS)
      if (container.image.startsWith('redis')) continue
      expect(container.image).toBe('registry.example.com/skein:0.1.0')
      expect(pod.topologySpreadConstraints?.map(({ whenUnsatisfiable }) => whenUnsatisfiable)).toEqual([
        overlay === 'ha' ? 'DoNotSchedule' : 'ScheduleAnyway',
      ])
    }
  })

  it('a drain of a machine takes one pod of a program at a time', () => {
    for (const { resource } of ours()) {
      const budgets = ofKind('PodDisruptionBudget').filter((budget) =>
        matches((budget['spec'] as { selector: { matchLabels: Labels } }).selector.matchLabels, labelsOf(resource)),
      )
      expect(budgets.map((budget) => (budget['spec'] as { maxUnavailable: number }).maxUnavailable)).toEqual([1])
      expect((resource['spec'] as { replicas: number }).replicas).toBe(overlay === 'ha' ? 2 : 1)
    }
  })

  it('a program reaches what it needs and nothing else', () => {
    const pods = [
      ...workloads().map((resource) => ({ name: resource.metadata.name, labels: labelsOf(resource) })),
      ...(overlay === 'ha' ? [{ name: 'database', labels: { 'cnpg.io/cluster': 'skein-database' } }] : []),
    ]
    const policies = ofKind('NetworkPolicy').map((policy) => policy['spec'] as Policy)
    const allows = (rules: readonly Rule[] | undefined, side: 'from' | 'to', peer: Labels, port: number) =>
      (rules ?? []).some(
        (rule) =>
          (rule.ports === undefined || rule.ports.some((one) => one.port === port)) &&
          (rule[side] ?? []).some(
            ({ podSelector, namespaceSelector }) =>
              podSelector !== undefined && namespaceSelector === undefined && selects(podSelector, peer),
          ),
      )
    const reaches = (from: Labels, to: Labels, port: number) => {
      const leaving = policies.filter((one) => one.policyTypes.includes('Egress') && selects(one.podSelector, from))
      const entering = policies.filter((one) => one.policyTypes.includes('Ingress') && selects(one.podSelector, to))
      return (
        (leaving.length === 0 || leaving.some(({ egress }) => allows(egress, 'to', to, port))) &&
        (entering.length === 0 || entering.some(({ ingress }) => allows(ingress, 'from', from, port)))
      )
    }
    const ports = [8080, 1883, 8883, 5683, 7070, 7071, 7072, 5432, 6379, 8000]
    const found = pods.flatMap((from) =>
      pods.flatMap((to) =>
        ports
          .filter((port) => reaches(from.labels, to.labels, port))
          .map((port) => `${from.name} to ${to.name}:${port}`),
      ),
    )
    expect(found.toSorted()).toEqual(
      [
        'manager to proxy:7072',
        'proxy to manager:7070',
        'worker to manager:7071',
        'worker to proxy:7072',
        ...(overlay === 'ha'
          ? [
              'api to database:5432',
              'manager to database:5432',
              'database to database:5432',
              'database to database:8000',
              'api to redis:6379',
              'manager to redis:6379',
            ]
          : []),
      ].toSorted(),
    )
    // Every pod of ours is under the policy that denies everything.
    for (const { labels } of pods.filter(({ name }) => name !== 'database'))
      expect(labels['app.kubernetes.io/part-of']).toBe('skein')
  })

  if (overlay === 'ha')
    it('COMMIT waits for a standby, which the programs require', () => {
      const [cluster] = ofKind('Cluster')
      expect(cluster?.['spec']).toMatchObject({
        instances: 3,
        postgresql: { synchronous: { method: 'any', number: 1, dataDurability: 'required', failoverQuorum: true } },
      })
      // The operator names the Secret after the cluster.
      expect(`${cluster?.metadata.name}-app`).toBe(DATABASE_SECRET.name)
      for (const { container, program } of ours().filter(({ program }) => ['api', 'manager'].includes(program)))
        expect(container.env, program).toContainEqual({ name: 'SKEIN_DATABASE_HA', value: 'true' })
    })

  it('a resource with a wrong value, a missing field or a misspelt one is found', async () => {
    const [deployment] = ofKind('Deployment') as [Resource]
    const spec = deployment['spec'] as Record<string, unknown>
    expect(await faultsOf({ ...deployment, spec: { ...spec, replicas: 'two' } })).toEqual([
      expect.stringContaining('replicas'),
    ])
    const { selector: _selector, ...rest } = spec
    expect(await faultsOf({ ...deployment, spec: rest })).toEqual([expect.stringContaining('selector')])
    expect(await faultsOf({ ...deployment, spec: { ...spec, replica: 2 } })).toEqual(['spec/replica is no field'])
  })
})

type Labels = Record<string, string>
type ServiceSpec = {
  type?: string
  selector?: Labels
  ports?: { port: number; targetPort: string; protocol?: string }[]
}
type IngressSpec = {
  rules: { http: { paths: { path: string; pathType: string; backend: { service: { name: string } } }[] } }[]
}
type Selector = { matchLabels?: Labels; matchExpressions?: { key: string; operator: string; values: string[] }[] }
type Rule = {
  from?: { podSelector?: Selector; namespaceSelector?: Selector }[]
  to?: { podSelector?: Selector; namespaceSelector?: Selector }[]
  ports?: { port: number }[]
}
type Policy = { podSelector: Selector; policyTypes: string[]; ingress?: Rule[]; egress?: Rule[] }

function matches(wanted: Labels, labels: Labels): boolean {
  return Object.entries(wanted).every(([key, value]) => labels[key] === value)
}

/** Expressions are of the operator In alone. */
function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  return matches(matchLabels, labels) && matchExpressions.every(({ key, values }) => values.includes(labels[key] ?? ''))
}
