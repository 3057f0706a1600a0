/** The paths that the reverse proxy of the reference deployment leads to the task manager, from the routes: a line of its Caddyfile. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const CADDYFILE = 'deploy/Caddyfile'
const ROOT = join(import.meta.dirname, '..', '..')
const LINE = /^\t@tasks path .*$/m

type Served = { readonly platform: readonly string[]; readonly manager: readonly string[] }

export function renderCaddyfile(served: Served): string {
  const text = readFileSync(join(ROOT, CADDYFILE), 'utf8')
  if (!LINE.test(text)) throw new Error(`${CADDYFILE} has no line \`@tasks path\``)
  return text.replace(LINE, `\t@tasks path ${managerPaths(served).join(' ')}`)
}

/** `/tasks` and `/tasks/*` for all routes that begin with it. Throws if a route of the platform begins with it too. */
export function managerPaths({ platform, manager }: Served): string[] {
  const paths = new Set<string>()
  for (const url of manager) {
    const [, first = '', ...rest] = url.split('/')
    if (first === '' || /^[:*]/.test(first))
      throw new Error(`${url}: the first segment must say that the task manager serves it`)
    paths.add(rest.length === 0 ? `/${first}` : `/${first}/*`)
  }
  const sorted = [...paths].toSorted()
  const both = platform.filter((url) => sorted.some((path) => isLed(url, path)))
  if (both.length > 0) throw new Error(`the platform and the task manager both serve ${both.join(', ')}`)
  return sorted
}

/** Whether a matcher of the Caddyfile fits the path. */
export const isLed = (url: string, path: string): boolean =>
  path.endsWith('/*') ? url.startsWith(path.slice(0, -1)) : url === path
