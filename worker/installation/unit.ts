/** The unit of a worker that was installed as a single file or as a package, from that of deploy/systemd. */
import { CURRENT, GUARD, SETTINGS } from './layout.ts'

/** This is longer than the time that a new version has to join. */
const START_TIMEOUT_SECONDS = 120

/** Returns the unit as `skein-worker install` installs it: the guard of an upgrade runs as root before and after each start. */
export function unitOf(template: string): string {
  return edgeUnit(template, [
    `ExecStartPre=+${GUARD} before`,
    `ExecStart=${CURRENT}/run`,
    `ExecStartPost=+${GUARD} after`,
  ])
}

/** Returns the unit as the Debian package in `home` installs it: dpkg replaces the version. */
export function packageUnitOf(template: string, home: string): string {
  return edgeUnit(template, [`ExecStart=${home}/run`])
}

/**
 * Differs from `template` in the program, its settings and the cache of compiled code. A worker of an edge machine counts as
 * started without a manager, which may be away for long: a wait for it would end the worker again and again.
 */
function edgeUnit(template: string, start: readonly string[]): string {
  const lines = template.split('\n').flatMap((line) => {
    if (/^(WorkingDirectory|ExecStartPost)=/.test(line) || line.startsWith('# Node cannot speak sd_notify')) return []
    if (line.startsWith('EnvironmentFile=')) return [`EnvironmentFile=-${SETTINGS}`]
    if (line.startsWith('TimeoutStartSec=')) return [`TimeoutStartSec=${START_TIMEOUT_SECONDS}`]
    if (line.startsWith('ExecStart='))
      return ['CacheDirectory=skein-worker', 'Environment=NODE_COMPILE_CACHE=/var/cache/skein-worker', ...start]
    return [line]
  })
  return lines.join('\n')
}
