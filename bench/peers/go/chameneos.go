package main

// guest is a creature's request for a meeting, or its report after the last one.
type guest struct {
	index, colour    uint64
	inbox            chan<- visit
	isReport         bool
	meetings, selves uint64
}

// visit is a message to a creature: another that it meets, or the colour that a meeting has made.
type visit struct {
	kind          visitKind
	index, colour uint64
	inbox         chan<- visit
}

type visitKind uint8

const (
	meet visitKind = iota
	change
	over
)

type mallReport struct {
	meetings, selves, miscounted, miscoloured uint64
}

// chameneos: a mall pairs creatures that ask for a meeting; both take the colour that the meeting makes.
func chameneos(given settings, result *outcome) error {
	keys, err := given.numbers("creatures")
	if err != nil {
		return err
	}
	report := measure(result, func() mallReport { return openMall(given.count, keys[0]) })
	result.check("meetings of all creatures", report.meetings, 2*given.count)
	result.check("creatures that met themselves", report.selves, 0)
	result.check("creatures whose count is not the mall's", report.miscounted, 0)
	result.check("colours that no meeting made", report.miscoloured, 0)
	return nil
}

// openMall is the mall, which has the colour and the number of meetings of each creature itself.
func openMall(meetings, creatures uint64) (report mallReport) {
	mall := make(chan guest, creatures)
	colours, met := make([]uint64, creatures), make([]uint64, creatures)
	for index := range colours {
		colours[index] = uint64(index % 3)
		go creature(uint64(index), colours[index], mall)
	}
	var waiting guest
	isWaiting := false
	for left := creatures; left > 0; {
		asking := <-mall
		report.miscoloured += wrong(asking.colour, colours[asking.index])
		switch {
		case asking.isReport:
			left--
			report.meetings += asking.meetings
			report.selves += asking.selves
			report.miscounted += wrong(asking.meetings, met[asking.index])
		case meetings == 0:
			asking.inbox <- visit{kind: over}
		case !isWaiting:
			waiting, isWaiting = asking, true
		default:
			meetings--
			isWaiting = false
			waiting.inbox <- visit{meet, asking.index, asking.colour, asking.inbox}
			made := complement(waiting.colour, asking.colour)
			for _, index := range [...]uint64{waiting.index, asking.index} {
				colours[index] = made
				met[index]++
			}
		}
	}
	return report
}

func creature(index, colour uint64, mall chan<- guest) {
	inbox := make(chan visit, 1)
	meetings, selves := uint64(0), uint64(0)
	for {
		mall <- guest{index: index, colour: colour, inbox: inbox}
		message := <-inbox
		switch message.kind {
		case meet:
			colour = complement(colour, message.colour)
			message.inbox <- visit{kind: change, index: index, colour: colour}
		case change:
			colour = message.colour
		case over:
			mall <- guest{isReport: true, index: index, colour: colour, meetings: meetings, selves: selves}
			return
		}
		meetings++
		selves += 1 - wrong(message.index, index)
	}
}

// complement returns the colour that a meeting makes.
func complement(one, other uint64) uint64 {
	if one == other {
		return one
	}
	return 3 - one - other
}
