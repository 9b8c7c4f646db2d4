"""A host, a board and a driver around one attempt's core: random, reproducible from a seed, with laws."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from nimbus.attempt import model as m
from nimbus.attempt.life import Life, Pace
from nimbus.attempt.model import ClaimHolder, Ordered, Terms
from tests.nimbus.attempts.driver import BrokenLawError, Driver, hold

TERMS = (
    Terms(),
    Terms(timeout_s=20.0, stop_grace_s=5.0),
    Terms(timeout_s=20.0, stop_grace_s=5.0, claim_valid_s=5.0, stuck_after_s=10.0),
    Terms(stop_grace_s=0.0, claim_valid_s=5.0, is_program=True),
    Terms(stop_grace_s=30.0, claim_valid_s=5.0, lease_s=12.0),
)
LAST_STEP = 3000


class World:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.terms = rng.choice(TERMS)
        pace = rng.choice((Pace(), Pace(first_board_read_s=0.3), None))
        self.beats_by_itself = pace is None
        if self.beats_by_itself:
            self.terms = self.terms._replace(claim_valid_s=m.NEVER_S, lease_s=m.NEVER_S)
        self.life = Life(self.terms, pace)
        self.now_s = 100.0
        self.answers: list[Callable[[], m.Event]] = []
        self.calm = False
        """True: nothing new happens, so the attempt must come to its end."""
        # The board.
        self.claim = rng.choices((ClaimHolder.OURS, ClaimHolder.OTHER), (9, 1))[0]
        self.is_claimed = self.end_filled = self.stop_requested = self.is_gone = self.has_heartbeat = False
        self.is_of_later_run = False
        # The host.
        self.asked_s = self.shown_s = self.proved_s = float("-inf")
        self.driver = Driver(self.terms)
        self.ends = 0
        self.told_s: float | None = None
        self.obeys = rng.random() < 0.6
        self.lags_until_s, self.saw_claim = float("-inf"), True
        self.knows_end = self.knows_it_is_useless = self.knows_stop = False
        self.probes = 0
        """Reads under way."""
        self.has_unread_change = self.sees_no_claim = False
        self.looked_s = self.started_s = float("-inf")
        self.log_is_stored = True
        self.silent_until_s = float("-inf")

    def play(self) -> None:
        """Play the whole history. Raises BrokenLawError."""
        if self.rng.random() < 0.05:
            self._begin_after_the_record()
        else:
            self._perform(self.life.begin())
        for number in range(LAST_STEP):
            if isinstance(self.life.state, m.Over) and not self.answers:
                self._check_end()
                return
            self.calm = number > LAST_STEP // 10
            self._go_on()
        raise BrokenLawError(f"it is {self.life.state} for ever")

    def _begin_after_the_record(self) -> None:
        self.claim, self.is_claimed, self.driver.is_recorded = ClaimHolder.OURS, True, True
        self.driver.starts = self.driver.records = 1
        self._perform(self.life.deliver())

    def _go_on(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [(2, self._wait)]
        if self.answers:
            choices.append((6, self._answer))
        if self.driver.runs:
            choices.append((2 if self.calm else 1, self._driver_goes_on))
        if not self.calm:
            choices += [(1, self._disturb)]
        if self.beats_by_itself and self.shown_s > 0 and not self.probes:
            choices.append((1, self._send_heartbeat))
        weights, moves = zip(*choices, strict=True)
        self.rng.choices(moves, weights)[0]()
        due = (
            self.told_s is not None
            and self.driver.runs
            and self.now_s > self.told_s + self.terms.stop_grace_s
        )
        if due and self.life.due_s <= self.now_s:
            self._tell(m.Tick())
            hold(self.told_s is None, "a driver was told to end, and gets no SIGKILL after its grace")

    def _tell(self, event: m.Event) -> None:
        match event:
            case m.EndAnswered():
                self.knows_end = True
            case m.AttemptGone():
                self.knows_it_is_useless = True
            case m.BoardRead(holder, asked_s, end_filled, stop_requested, _):
                self.probes -= 1
                self.knows_it_is_useless |= end_filled or holder is ClaimHolder.OTHER
                self.knows_stop |= stop_requested
                self.saw_claim |= holder is ClaimHolder.OURS and asked_s > self.lags_until_s
                self.looked_s = self.now_s
                if self.driver.runs and holder is ClaimHolder.OURS and not end_filled:
                    self.proved_s = asked_s
            case m.BoardSilent():
                self.probes -= 1
                self.looked_s = self.now_s
            case m.BoardChanged():
                self.has_unread_change = self._needs_beats()
            case _:
                pass
        self.sees_no_claim = isinstance(event, m.BoardRead) and event.holder is ClaimHolder.NONE
        self._perform(self.life.apply(event, self.now_s))
        self._check(event)

    def _check(self, event: m.Event) -> None:
        """What must be true after each event."""
        if self.driver.runs and (self.knows_it_is_useless or self.knows_stop):
            hold(self.driver.was_told, "a driver is not told to end that should")
        state = self.life.state
        if isinstance(state, m.Running) and state.ordered is Ordered.OUTDATED:
            hold(self.knows_it_is_useless or self.is_gone, "a server that lags behind ended a driver")
        if isinstance(event, m.BoardRead) and not event.has_heartbeat and self._needs_beats():
            is_ours = event.holder is ClaimHolder.OURS
            hold(self.has_heartbeat or not is_ours, "a heartbeat is missing after a new session")
        if isinstance(event, m.Tick) and self._needs_beats() and not self.beats_by_itself:
            last_s = max(self.looked_s, self.shown_s)
            hold(self.probes > 0 or self.now_s - last_s < 6, "the board is not read any more")
            hold(self.probes > 0 or not self.has_unread_change, "a change is not read at once")
        if (
            isinstance(event, m.Tick)
            and self.driver.runs
            and self.now_s >= self.started_s + self.terms.timeout_s
        ):
            hold(self.driver.was_told, "a driver runs beyond its timeout")
        if isinstance(event, m.Tick) and self.driver.runs:
            hold(self.now_s < self.proved_s + self.terms.lease_s, "a driver runs beyond its lease")

    def _needs_beats(self) -> bool:
        """True while a leader would take the attempt for lost without heartbeats."""
        is_needed = not self.knows_end and not self.knows_it_is_useless
        return self.shown_s > 0 and is_needed and not isinstance(self.life.state, m.Over)

    def _wait(self) -> None:
        due_s = self.life.due_s
        step_s = self.rng.choice((0.1, 1.0, 1.0, 6.0))
        self.now_s = min(self.now_s + step_s, max(due_s, self.now_s)) if due_s < 1e9 else self.now_s + step_s
        if self.life.due_s <= self.now_s:
            self._tell(m.Tick())

    def _answer(self) -> None:
        event = self.answers.pop(self.rng.randrange(len(self.answers)))()
        self._tell(event)

    def _disturb(self) -> None:
        disturb = self.rng.choice(
            (
                self._request_stop,
                self._fill_end,
                self._archive,
                self._begin_later_run,
                self._renew_session,
                self._renew_session,
                self._report_fault_of_driver,
                self._ask_to_leave,
                self._end_starter,
                self._stand_still,
                self._silence_board,
                self._silence_board,
            )
        )
        disturb()

    def _request_stop(self) -> None:
        self.stop_requested = True
        self._report_change()

    def _fill_end(self) -> None:
        self.end_filled = self.end_filled or (self.is_claimed and self.rng.random() < 0.3)

    def _archive(self) -> None:
        self.is_gone = self.is_gone or (self.is_claimed and self.rng.random() < 0.2)

    def _begin_later_run(self) -> None:  # of the same id, claimed by another process
        self.is_of_later_run = self.is_of_later_run or (self.shown_s > 0 and self.rng.random() < 0.2)

    def _renew_session(self) -> None:
        self.has_heartbeat = False
        if self.saw_claim:  # the new server lags behind for less than GONE_AFTER_S
            self.saw_claim = False
            self.lags_until_s = self.now_s + 4
        self._report_change()

    def _report_change(self) -> None:
        if not self.beats_by_itself:  # else nothing is watched
            self._tell(m.BoardChanged())

    def _report_fault_of_driver(self) -> None:
        if self.driver.runs and self.rng.random() < 0.5:
            self._tell(self.rng.choice((m.Exceeded("disk"), m.ServerGone())))

    def _ask_to_leave(self) -> None:
        if self.rng.random() < 0.2:
            self._tell(m.LeaveAsked())

    def _end_starter(self) -> None:
        if self.driver.runs and self.rng.random() < 0.2:
            self.driver.die(remains=True)
            self._tell(m.StarterDied())

    def _stand_still(self) -> None:  # the process or the host was stopped
        self.now_s += self.rng.choice((0.0, 3.0, 7.0, 60.0))

    def _silence_board(self) -> None:
        self.silent_until_s = self.now_s + self.rng.choice((5.0, 20.0, 60.0))

    def _driver_goes_on(self) -> None:
        rng = self.rng
        if self.told_s is not None and not self.obeys:
            return  # only SIGKILL ends it
        if not self.driver.is_done and rng.random() < 0.5:
            self.driver.is_done = not self.terms.is_program
            return
        self._exit(0 if self.driver.is_done else rng.choice((0, 1, -9, 0)))

    def _exit(self, status: int) -> None:
        self.driver.exit(status, remains=self.rng.random() < 0.3)
        self.told_s = None
        exited = m.Exited(status, self.driver.is_done)
        self.answers.append(lambda: exited)

    # --- instructions ---

    def _perform(self, instructions: tuple[m.Instruction, ...]) -> None:
        for instruction in instructions:
            getattr(self, f"_{type(instruction).__name__.lower()}")(instruction)

    def _later(self, answer: Callable[[], m.Event]) -> None:
        self.answers.append(answer)

    def _putclaim(self, _: m.PutClaim) -> None:
        hold(not self.is_claimed, "a second claim")
        self.asked_s, self.is_claimed = self.now_s, True

        def answered() -> m.Event:
            if self.is_gone:
                return m.AttemptGone()
            self.shown_s = self.asked_s
            return m.ClaimAnswered(self.claim, self.asked_s)

        self._later(answered)

    def _readboard(self, _: m.ReadBoard) -> None:
        hold(not self.beats_by_itself, "the board is read, though heartbeats say it all")
        asked_s = self.looked_s = self.now_s
        self.probes += 1
        self.has_unread_change = False

        def looked() -> m.Event:
            if not self.calm and self.rng.random() < 0.2:  # the answer was under way for long
                self.now_s += 3.0
            if not self.calm and (self.rng.random() < 0.1 or self.now_s < self.silent_until_s):
                return m.BoardSilent()
            if self.is_gone and self.rng.random() < 0.5:
                self.probes -= 1
                return m.AttemptGone()
            lags = self.is_gone or self.now_s < self.lags_until_s
            holder = ClaimHolder.OTHER if self.is_of_later_run else self.claim
            holder = ClaimHolder.NONE if lags else holder
            if holder is ClaimHolder.OURS and not self.end_filled:
                self.shown_s = max(self.shown_s, asked_s)
            return m.BoardRead(holder, asked_s, self.end_filled, self.stop_requested, self.has_heartbeat)

        self._later(looked)

    def _readnotes(self, _: m.ReadNotes) -> None:
        text = self.rng.choice(("{}", '{"a":1}', '{"a":2}'))
        self._later(lambda: m.NotesRead(text, self.rng.choice((None, "1", "2"))))

    def _sendheartbeat(self, _: m.SendHeartbeat) -> None:
        hold(self.claim is ClaimHolder.OURS, "a heartbeat without the claim")
        hold(not self.knows_it_is_useless, "a heartbeat for an attempt that is over, or of another")
        hold(not self.knows_end, "a heartbeat after END")
        hold(not self.sees_no_claim, "a heartbeat where another run may be")
        self.has_heartbeat = True

    def _send_heartbeat(self) -> None:
        asked_s = self.now_s
        self.probes += 1

        def answered() -> m.Event:
            lags = self.is_gone or self.now_s < self.lags_until_s
            is_over = self.end_filled or self.is_of_later_run
            return m.BoardRead(
                ClaimHolder.NONE if lags else ClaimHolder.OURS, asked_s, is_over, self.stop_requested
            )

        self._later(answered)

    def _keepcheckpoint(self, _: m.KeepCheckpoint) -> None:
        hold(self.claim is ClaimHolder.OURS, "a checkpoint without the claim")

    def _prepare(self, _: m.Prepare) -> None:
        hold(self.claim is ClaimHolder.OURS, "files are made without the claim")
        self.proved_s = self.shown_s
        fresh = self.now_s - self.shown_s <= self.terms.claim_valid_s
        hold(fresh, "a driver is made ready long after the board showed the claim")
        fit = self.rng.random() < 0.9
        self._later(lambda: m.Prepared() if fit else m.Unfit("no room"))

    def _startdriver(self, _: m.StartDriver) -> None:
        hold(self.claim is ClaimHolder.OURS, "a driver starts without the claim")
        fresh = self.now_s - self.shown_s <= self.terms.claim_valid_s
        hold(fresh, "a driver starts long after the board showed the claim")
        hold(not (self.knows_it_is_useless or self.knows_stop), "a driver starts that nobody needs")
        self.driver.start()
        self.started_s = self.now_s

    def _asktoend(self, order: m.AskToEnd) -> None:
        is_early = order.why is Ordered.CUT_OFF and self.now_s < self.proved_s + self.terms.lease_s
        hold(not is_early, "a driver is cut off within its lease")
        told = m.ToldToEnd(self.driver.tell())
        if self.driver.runs:
            self.told_s = self.now_s
            if order.kill:
                self._exit(-9)
        self._tell(told)

    def _killdriver(self, _: m.KillDriver) -> None:
        hold(self.driver.was_told, "a driver is killed that was not told to end")
        if self.driver.runs and (self.terms.stuck_after_s == m.NEVER_S or self.rng.random() < 0.7):
            self._exit(-9)
        self.told_s = None

    def _killstarter(self, _: m.KillStarter) -> None:
        hold(self.driver.was_told, "the starter of drivers is killed without need")
        if self.driver.runs:
            self.driver.die(remains=True)
            self._later(m.StarterDied)

    def _clear(self, _: m.Clear) -> None:
        self.driver.clear()
        gone = self.rng.random() < 0.05
        if gone:
            self.driver.lose_server()
        self._later(lambda: m.Cleared(server_gone=gone))

    def _commit(self, _: m.Commit) -> None:
        fault = self.rng.choice(("", "", "no room"))
        self.driver.commit(fails=bool(fault))
        self._later(lambda: m.Committed(fault))

    def _record(self, order: m.Record) -> None:
        is_lost = bool(order.story.lost)
        hold(not is_lost or self.is_gone or self.driver.starts, "a server that lags behind lost an attempt")
        self.driver.record(order.story)

        def recorded() -> m.Event:
            self.driver.is_recorded = True
            return m.Recorded()

        self._later(recorded)

    def _putend(self, _: m.PutEnd) -> None:
        hold(self.driver.is_recorded, "END before the exit record")
        hold(not self.ends, "END is put twice")
        self.ends += 1

        def answered() -> m.Event:
            is_withdrawn = self.is_gone or self.is_of_later_run
            return m.AttemptGone() if is_withdrawn else m.EndAnswered("succeeded")

        self._later(answered)

    def _storelog(self, _: m.StoreLog) -> None:
        self.log_is_stored = self.rng.random() < 0.8
        self._later(lambda: m.LogStored(self.log_is_stored))

    def _forgetattempt(self, order: m.ForgetAttempt) -> None:
        self.driver.forget(order.why)
        over = (
            self.ends
            or self.is_gone
            or self.end_filled
            or self.claim is not ClaimHolder.OURS
            or self.is_of_later_run
        )
        hold(over, "an attempt is forgotten that has no end:", order.why)
        hold(self.log_is_stored, "an attempt is forgotten whose log is not stored")

    def _leaveattempt(self, _: m.LeaveAttempt) -> None:
        hold(not self.driver.runs, "an attempt is left whose driver runs")

    def _check_end(self) -> None:
        hold(not self.driver.runs, "it is over, and its driver runs")
        if self.driver.starts:
            hold(self.driver.records, "a driver ran, and there is no exit record")


def play(seed: int) -> str:
    """Play one history; return the broken law, or ""."""
    try:
        World(seed).play()
    except BrokenLawError as exc:
        return str(exc)
    return ""
