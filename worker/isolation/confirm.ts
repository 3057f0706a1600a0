/** What an isolated process checks before it handles anything: that it was started as isolation says. */

const EXIT_NOT_ISOLATED = 70

/** Ends the process, with one line on its error output, when the permission model or the ban on code from text is off. */
export function confirmIsolation(): void {
  const fault = findFault()
  if (fault === undefined) return
  process.stderr.write(`this process is not isolated: ${fault}\n`)
  process.exit(EXIT_NOT_ISOLATED)
}

function findFault(): string | undefined {
  const { permission } = process
  if (permission === undefined) return 'the permission model is off'
  for (const scope of ['fs.write', 'child', 'addon', 'net', 'inspector']) {
    if (permission.has(scope)) return `it may use ${scope}`
  }
  if (permission.has('fs.read', '/')) return 'it may read every file'
  try {
    // oxlint-disable-next-line no-eval -- the point is that it must fail
    globalThis.eval('0')
    return 'it makes code from text'
  } catch {
    return undefined
  }
}
