/** Kills in turns of a product that runs whole, for tests that count what is left afterwards. */
import { commandOf, familyOf, startWhole } from './whole.ts'
import type { Installation, Whole } from './whole.ts'

/** Kills every process, which is started again, or in each second turn PostgreSQL, which is restarted by the product. Returns what runs then. */
export async function strike(installation: Installation, whole: Whole, turn: number): Promise<Whole> {
  const members = familyOf(whole.pid)
  const meant =
    turn % 2 === 0
      ? members.toReversed()
      : members.filter((pid) => commandOf(pid).includes(`-D ${installation.dataDir}`))
  for (const pid of meant) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended already.
    }
  }
  if (turn % 2 !== 0) return whole
  await whole.ended
  return await startWhole(installation)
}
