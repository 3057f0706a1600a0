/** The check of an isolated process at its start: that the isolation is in effect. */

const EXIT_NOT_ISOLATED = 70

/** Exits with one line on the error output if the permission model or the ban on `eval` is off. */
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
    if (permission.has(scope)) return `it can use ${scope}`
  }
  if (permission.has('fs.read', '/')) return 'it can read every file'
  try {
    // oxlint-disable-next-line no-eval -- this must fail
    globalThis.eval('0')
    return 'eval is allowed'
  } catch {
    return undefined
  }
}
