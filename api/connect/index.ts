/** The addresses under which devices and workers connect. */
export { connectRoutes } from './routes.ts'
export type { Listeners } from './addresses.ts'
