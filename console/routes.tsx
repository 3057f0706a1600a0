/** The routes of the console: the entrance, and the frame with the screens in it. */
import {
  Link,
  Outlet,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
  useRouter,
} from '@tanstack/react-router'
import type { ErrorComponentProps } from '@tanstack/react-router'
import { useCallback, useEffect } from 'react'
import { consoleBase } from './api/base.ts'
import { ApiError } from './api/errors.ts'
import { resumeSession, sessionState } from './api/session.ts'
import { Empty, Skeleton } from './design/display.tsx'
import { paths } from './paths.ts'
import { SCREENS } from './screens.ts'
import type { Screen } from './screens.ts'
import { Frame } from './shell/frame.tsx'
import { ErrorState } from './shell/states.tsx'
import { parseSearch, stringifySearch } from './shell/url.ts'

const root = createRootRoute({
  component: Outlet,
  errorComponent: (props) => (
    <div className="entrance">
      <Failed {...props} />
    </div>
  ),
})

async function requireSession({ location }: { location: { href: string } }): Promise<void> {
  if (sessionState().kind === 'starting')
    await resumeSession().catch((error: unknown) => {
      if (!(error instanceof ApiError && error.status === 401)) throw error
    })
  if (sessionState().kind === 'signed-out') {
    const next = location.href === '/' ? {} : { next: location.href }
    redirect({ to: paths.signIn(), search: next, throw: true })
  }
}

const open = createRoute({ getParentRoute: () => root, id: 'open', component: Outlet })
const inside = createRoute({ getParentRoute: () => root, id: 'inside', beforeLoad: requireSession, component: Frame })

/** An address that no screen has: the navigation is there, so that the user goes on. */
function NoSuchPage() {
  useEffect(() => {
    document.title = 'No such page · Skein'
  }, [])
  return (
    <Empty
      icon="search"
      title="There is no such page"
      actions={
        <Link className="button primary" to={paths.home()}>
          Show your domains
        </Link>
      }
    >
      The address is misspelt, or of another version.
    </Empty>
  )
}

/** On a slow line, the frame does not wait for the screen in it. */
const PENDING_MS = 300
const Loading = () => <Skeleton />

const screen = ({ path, load }: Screen) =>
  createRoute({
    getParentRoute: () => inside,
    path,
    component: lazyRouteComponent(async () => ({ default: await load() })),
    pendingComponent: Loading,
    pendingMs: PENDING_MS,
    pendingMinMs: 0,
  })
const entrance = (path: string, name: 'SignIn' | 'SignUp' | 'Recovery') =>
  createRoute({
    getParentRoute: () => open,
    path,
    component: lazyRouteComponent(() => import('./rooms/identity/entrance.tsx'), name),
  })

const tree = root.addChildren([
  open.addChildren([entrance('/sign-in', 'SignIn'), entrance('/sign-up', 'SignUp'), entrance('/recovery', 'Recovery')]),
  inside.addChildren([
    createRoute({ getParentRoute: () => inside, path: '$', component: NoSuchPage }),
    ...SCREENS.map(screen),
  ]),
])

const asError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)))
const RETRY_MS = 3_000

/** What asks for the session is part of the route, and is asked again with it. */
function Failed({ error, reset }: ErrorComponentProps) {
  const router = useRouter()
  const known = asError(error)
  const isUnreachable = known instanceof ApiError && [0, 502, 503].includes(known.status)
  const retry = useCallback(() => void router.invalidate().then(reset), [router, reset])
  useEffect(() => {
    if (!isUnreachable) return
    const timer = setInterval(retry, RETRY_MS)
    return () => clearInterval(timer)
  }, [isUnreachable, retry])
  return <ErrorState error={known} onRetry={retry} />
}

export function createConsoleRouter() {
  return createRouter({
    routeTree: tree,
    basepath: consoleBase.pathname.replace(/\/$/, ''),
    parseSearch,
    stringifySearch,
    defaultPreload: 'intent',
    defaultErrorComponent: Failed,
    scrollRestoration: true,
  })
}
