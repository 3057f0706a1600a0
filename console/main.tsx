import './early.ts'
import './design/base.css'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { queryClient } from './api/queries.ts'
import { forgetRequests, turnPage } from './api/requests.ts'
import { onSession, sessionState } from './api/session.ts'
import { createConsoleRouter } from './routes.tsx'
import './shell/font.ts'
import './shell/theme.ts'

const router = createConsoleRouter()

// This runs before the new page sends its own requests.
router.subscribe('onBeforeNavigate', ({ pathChanged, fromLocation, toLocation }) => {
  if (pathChanged && fromLocation !== undefined) turnPage(fromLocation.pathname, toLocation.pathname)
})

// Another user must not see what the one before saw.
let userId: string | undefined
onSession(() => {
  const session = sessionState()
  if (
    session.kind === 'signed-out' ||
    (session.kind === 'signed-in' && userId !== undefined && session.userId !== userId)
  ) {
    queryClient.clear()
    forgetRequests()
    sessionStorage.clear()
    void router.invalidate()
  }
  if (session.kind === 'signed-in') userId = session.userId
})

const root = document.getElementById('root')
if (root === null) throw new Error('the document has no root')
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
)
