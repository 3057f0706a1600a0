/** deploy/kubernetes, built as `kubectl apply -k` builds it, and the schemas of the Kubernetes API. */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import { ROOT } from './monitoring-files.ts'

export const FOLDER = join(ROOT, 'deploy', 'kubernetes')

export type Resource = { apiVersion: string; kind: string; metadata: { name: string; namespace?: string } } & Record<
  string,
  unknown
>

export type EnvironmentVariable = { name: string; value?: string; valueFrom?: unknown }
export type Probe = { httpGet?: { path: string; port: string; scheme?: string }; exec?: { command: string[] } }
export type Container = {
  name: string
  image: string
  command: string[]
  env?: EnvironmentVariable[]
  envFrom?: { configMapRef: { name: string } }[]
  ports?: { name: string; containerPort: number; protocol?: string }[]
  readinessProbe?: Probe
  livenessProbe?: Probe
  resources: { limits: Record<string, string>; requests: Record<string, string> }
  securityContext: {
    allowPrivilegeEscalation: boolean
    readOnlyRootFilesystem: boolean
    capabilities: { drop: string[]; add?: string[] }
  }
  volumeMounts: { name: string; mountPath: string }[]
}
export type Pod = {
  automountServiceAccountToken: boolean
  enableServiceLinks: boolean
  terminationGracePeriodSeconds?: number
  securityContext: { runAsNonRoot?: boolean; runAsUser: number; seccompProfile: { type: string } }
  topologySpreadConstraints?: { whenUnsatisfiable: string }[]
  containers: Container[]
  volumes: { name: string; secret?: { secretName: string; items?: { key: string; path: string }[] } }[]
}

/** The program that builds overlays; undefined where there is none. */
export const builder: readonly string[] | undefined = [
  ['kustomize', 'build'],
  ['kubectl', 'kustomize'],
].find(([program = '', verb = '']) => {
  try {
    execFileSync(program, [verb, '--help'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})

/** Throws what the builder says against the overlay. */
export function buildOverlay(name: string): Resource[] {
  const [program = '', ...args] = builder ?? []
  const text = execFileSync(program, [...args, join(FOLDER, 'overlays', name)], { encoding: 'utf8' })
  return parseAllDocuments(text).map((document) => document.toJS() as Resource)
}

type Model = new (data: object) => { validate(): void }

/** The class of a kind, from the package that has the schemas of its API group. */
async function modelOf({ apiVersion, kind }: Resource): Promise<Model> {
  const home = apiVersion.includes('cnpg.io') ? '@kubernetes-models/cloudnative-pg' : 'kubernetes-models'
  // Named by the resource, so it cannot be a fixed import.
  const loaded = (await import(`${home}/${apiVersion}/${kind}`)) as Record<string, Model>
  const model = loaded[kind]
  if (model === undefined) throw new Error(`${home} has no ${apiVersion} ${kind}`)
  return model
}

/**
 * What the schema of its kind finds wrong. The schemas allow fields that they do not know, and the API server ignores them with a
 * warning: a field that no rule has read is one of them.
 */
export async function faultsOf(resource: Resource): Promise<string[]> {
  const Model = await modelOf(resource)
  const fields = new Map<object, Set<string | symbol>>()
  const watch = <Value>(value: Value): Value => {
    if (typeof value !== 'object' || value === null) return value
    const copy: object = Array.isArray(value)
      ? value.map(watch)
      : Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, watch(inner as unknown)]))
    const seen = new Set<string | symbol>()
    const watched = new Proxy(copy, {
      get(target, name, receiver) {
        seen.add(name)
        return Reflect.get(target, name, receiver) as unknown
      },
    })
    fields.set(watched, seen)
    return watched as Value
  }
  const model = new Model({})
  // The constructor copies the fields of the resource itself.
  for (const [name, value] of Object.entries(resource)) (model as Record<string, unknown>)[name] = watch(value)
  try {
    model.validate()
  } catch (error) {
    return [(error as Error).message]
  }
  const unread: string[] = []
  const visit = (value: unknown, path: string) => {
    if (typeof value !== 'object' || value === null) return
    const seen = new Set(fields.get(value))
    for (const [name, inner] of Object.entries(value)) {
      if (!Array.isArray(value) && !seen.has(name)) unread.push(`${path}/${name} is no field`)
      else visit(inner, `${path}/${name}`)
    }
  }
  for (const [name, value] of Object.entries(resource)) {
    const watched = (model as Record<string, unknown>)[name]
    if (typeof value === 'object') visit(watched, name)
  }
  return unread
}

/** The folder of `prepare.sh` with what it made. */
export type Secrets = Disposable & { folder: string; keys: string[] }

export function prepareSecrets(hostName: string): Secrets {
  const folder = mkdtempSync(join(tmpdir(), 'skein-kubernetes-'))
  cpSync(join(FOLDER, 'prepare.sh'), join(folder, 'prepare.sh'))
  execFileSync('sh', [join(folder, 'prepare.sh'), hostName], { stdio: 'pipe' })
  return {
    folder: join(folder, 'secrets'),
    keys: readdirSync(join(folder, 'secrets/skein')).toSorted(),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

export const readSecret = ({ folder }: Secrets, key: string): string => readFileSync(join(folder, 'skein', key), 'utf8')
