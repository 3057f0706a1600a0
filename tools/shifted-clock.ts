/**
 * The clock that libfaketime has set for this process, for PostgreSQL, which has an environment of its own: tests and
 * their database must have the same date. The harness refuses a clock that differs.
 */

/** `FAKETIME_SHARED` is left out: its memory belongs to the current user, and PostgreSQL can run as another one. */
const VARIABLES = ['LD_PRELOAD', 'FAKETIME', 'FAKETIME_DONT_FAKE_MONOTONIC']

/** Variables for PostgreSQL; none without a shifted clock. */
export function shiftedClock(): Record<string, string> {
  if (process.env['FAKETIME'] === undefined) return {}
  const given = VARIABLES.map((name) => [name, process.env[name]] as const)
  return Object.fromEntries(given.filter((pair): pair is [string, string] => pair[1] !== undefined))
}
