/**
 * The clock that libfaketime has set for this process, for PostgreSQL, which is started with an environment of its own: tests
 * and their database live on the same day. The harness refuses a clock that differs.
 */

/** Not `FAKETIME_SHARED`: the memory that it names belongs to our user, and PostgreSQL may run as another one. */
const VARIABLES = ['LD_PRELOAD', 'FAKETIME', 'FAKETIME_DONT_FAKE_MONOTONIC']

/** Variables for PostgreSQL; none where nobody has set the clock. */
export function shiftedClock(): Record<string, string> {
  if (process.env['FAKETIME'] === undefined) return {}
  const given = VARIABLES.map((name) => [name, process.env[name]] as const)
  return Object.fromEntries(given.filter((pair): pair is [string, string] => pair[1] !== undefined))
}
