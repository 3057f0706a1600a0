/** Not a bug but a state of this machine: something may be given up, or somebody else may do what wants the room. */
export function isDiskFull(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return code === 'ENOSPC' || code === 'EDQUOT'
}
