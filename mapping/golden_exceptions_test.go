package mapping_test

// goldenException is a query that is answered otherwise than OpenTSDB did, and why.
type goldenException struct {
	query string   // as queryRequest.String has it
	on    []string // set@dump
	why   string
}

var (
	everyRaw = []string{
		"readraw@cells", "readraw-compact@input", "readraw-compact@cells",
		"readraw-fixdup@input", "readraw-fixdup@cells",
	}
	rawRefusingDuplicates = []string{"readraw@cells", "readraw-compact@input", "readraw-compact@cells"}
	refusingDuplicates    = []string{"compact-query@cells-before", "compact-query@cells-after-query"}
	sameTimestamp         = []string{"compact-fixdup@cells-before"}
	smallestValue         = []string{"dtcs-min@cells-before"}
)

const (
	whyDuplicate = "OpenTSDB refuses conflicting points of one instant unless fix_duplicates is set; here the last wins"
	whyInside    = "conflicting points in one cell: with fix_duplicates OpenTSDB takes the first; here the last wins"
	whyTie       = "conflicting points in cells of one timestamp: OpenTSDB, whose order is not fixed, took the " +
		"smallest qualifier; here it is the largest"
	whySmallest = "conflicting points in cells of one timestamp: with use_max_value=false OpenTSDB takes the " +
		"smallest value; here the largest qualifier wins"
	whyInfinity = "OpenTSDB refuses to answer infinities"
	whyNoTags   = "OpenTSDB refuses rows without tags; here they are series without tags"
	whyLatin    = "stored names that are valid UTF-8 are read as UTF-8; OpenTSDB reads them as ISO-8859-1"
	whyLost     = "OpenTSDB stored ? for what ISO-8859-1 lacks, and knows the name from memory until its restart"
)

// goldenExceptions are all of them. One that does not occur fails the test.
var goldenExceptions = []goldenException{
	{"none:comp", refusingDuplicates, whyDuplicate},
	{"none:comp{c=literal_or(dupdiff)}", refusingDuplicates, whyDuplicate},
	{"none:comp{c=literal_or(dupdiff2)}", refusingDuplicates, whyDuplicate},
	{"none:comp{c=literal_or(dup3)}", refusingDuplicates, whyDuplicate},
	{"none:dup", []string{"plain@cells"}, whyDuplicate},
	{"none:raw.comp-dup-inside-diff", rawRefusingDuplicates, whyDuplicate},
	{"none:raw.comp-plus-single-diff", rawRefusingDuplicates, whyDuplicate},
	{"none:raw.app-plus-put-diff", rawRefusingDuplicates, whyDuplicate},
	{"none:raw.sec-ms-same", rawRefusingDuplicates, whyDuplicate},

	{"none:raw.comp-dup-inside-diff", []string{"readraw-fixdup@input"}, whyInside},

	{"none:comp", sameTimestamp, whyTie},
	{"none:comp{c=literal_or(dupdiff)}", sameTimestamp, whyTie},
	{"none:comp{c=literal_or(dupdiff2)}", sameTimestamp, whyTie},
	{"none:comp{c=literal_or(dup3)}", sameTimestamp, whyTie},

	{"none:comp", smallestValue, whySmallest},
	{"none:comp{c=literal_or(dupdiff)}", smallestValue, whySmallest},
	{"none:comp{c=literal_or(dupdiff2)}", smallestValue, whySmallest},
	{"none:comp{c=literal_or(dup3)}", smallestValue, whySmallest},

	{"none:raw.inf4", everyRaw, whyInfinity},
	{"sum:raw.inf4", everyRaw, whyInfinity},
	{"max:raw.inf4", everyRaw, whyInfinity},
	{"none:raw.inf8", everyRaw, whyInfinity},
	{"sum:raw.inf8", everyRaw, whyInfinity},
	{"max:raw.inf8", everyRaw, whyInfinity},

	{"none:raw.no-tags", everyRaw, whyNoTags},
	{"sum:raw.no-tags", everyRaw, whyNoTags},

	{"none:m\u00c3\u00a9tr.\u00e6\u0097\u00a5", everyRaw, whyLatin},
	{"none:métr.日", everyRaw, whyLatin},

	{"none:http.指标", []string{"plain@cells"}, whyLost},
	{"none:http.??", []string{"plain@cells"}, whyLost},

	{
		"none:raw.ann-badjson", everyRaw,
		"OpenTSDB reads annotations with the points and refuses bad JSON; here they are skipped",
	},
	{
		"none:raw.empty-value", []string{"readraw@cells", "readraw-compact@input", "readraw-fixdup@input"},
		"OpenTSDB passes over an empty value on the first read, and spoils the row by writing it back; here it is an " +
			"error that costs no other cell",
	},
	{
		"none:xts", []string{"plain@cells"},
		"OpenTSDB cuts times after 2106 to 32 bits, in puts and in the range of a query; here the range holds",
	},
}
